"""`shoal doctor`: diagnostics of an experiment before a long run."""
