"""One conversation on one leg."""
