"""What algorithms share: networks, advantages, replay memory, running statistics, diversity."""
