"""Population-based training: selectors, explorers, and the evolver that joins them."""
