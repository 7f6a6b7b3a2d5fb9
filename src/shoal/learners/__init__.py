"""What lifts an agent to a whole population."""
