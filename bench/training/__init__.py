"""Trains the weights of end-of-turn detection."""
