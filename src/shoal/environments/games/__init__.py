"""Games of two seats, known as a whole: their trees as tables, what is to be exploited in a policy, and play in JAX."""
