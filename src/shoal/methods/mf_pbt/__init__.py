"""Multiple-frequencies population-based training."""
