"""Modules that every part may import: the vocabulary, trees, keys, atomic files, messages."""
