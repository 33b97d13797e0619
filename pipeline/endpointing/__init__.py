"""End-of-turn detection: deciding after a pause whether the caller's turn is over."""
