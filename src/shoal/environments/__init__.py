"""Where members act: device environments (JAX) and host environments (gymnasium), found by id."""
