"""Training of the end-of-turn weights."""
