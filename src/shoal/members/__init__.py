"""The members that train together in one process: shards, their rollouts, and how they lie on devices."""
