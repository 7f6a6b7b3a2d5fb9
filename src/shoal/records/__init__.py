"""Records of a run: callbacks, files and curves."""
