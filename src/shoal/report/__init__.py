"""The page of a run, drawn from its records."""
