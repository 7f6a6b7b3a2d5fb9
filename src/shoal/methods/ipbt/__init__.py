"""Iterated population-based training."""
