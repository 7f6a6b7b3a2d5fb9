"""How processes see each other, and decide together or alone."""
