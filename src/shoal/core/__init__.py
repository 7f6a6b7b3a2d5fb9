"""What every part may import: the vocabulary, trees, keys, files that are whole, messages."""
