"""Speech engines and agents, chosen at the start and shared between calls."""
