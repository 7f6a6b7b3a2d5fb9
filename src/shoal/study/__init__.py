"""Studies: several arms of an experiment with several seeds each, and what can be said of their differences."""
