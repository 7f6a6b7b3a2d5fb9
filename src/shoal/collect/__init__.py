"""Acting: where a population meets its environments. A device arena compiles all of it, a host arena loops."""
