"""Members that are trained by other people's code, each process with an interpreter of its own."""
