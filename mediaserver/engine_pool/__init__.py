"""Chooses, starts and shares the speech engines and agents of calls."""
