"""CEM-RL."""
