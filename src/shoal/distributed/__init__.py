"""The processes of a run: they see each other, and decide together or alone."""
