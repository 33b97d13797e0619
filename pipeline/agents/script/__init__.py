"""The agent led by a script."""
