"""Environments: on the device (JAX) and on the host (gymnasium), found by id."""
