"""Population-based bandits."""
