"""Parts that algorithms share: networks, advantages, replay buffer, running statistics, diversity."""
