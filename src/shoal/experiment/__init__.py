"""The experiment: what its file says, and what that resolves to."""
