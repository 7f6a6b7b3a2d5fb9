"""Rollouts: a population acts in its environments. On the device all of it is compiled, on the host it is a loop."""
