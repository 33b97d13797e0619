"""The agent led by a language model."""
