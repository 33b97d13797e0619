"""The agent that speaks through a language model, with its tools."""
