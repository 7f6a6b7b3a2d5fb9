"""Two-player zero-sum games, known as a whole: their trees as tables, exploitability of a policy, and play in JAX."""
