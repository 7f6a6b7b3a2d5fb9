"""The members that train together in one process."""
