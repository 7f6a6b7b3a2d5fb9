"""The algorithms, one file each: the mathematics of one member."""
