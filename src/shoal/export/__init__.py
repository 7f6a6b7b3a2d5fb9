"""Policies as files that other programs run."""
