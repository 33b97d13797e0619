"""Speech engines and agents, chosen and shared between calls."""
