"""One run: the loop, its directory, checkpoints, the champion, its result."""
