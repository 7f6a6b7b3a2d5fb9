"""The parts that algorithms share: returns, running statistics."""
