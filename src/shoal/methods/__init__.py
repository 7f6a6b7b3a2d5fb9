"""How the members of a population learn from one another: one folder or file for each method."""
