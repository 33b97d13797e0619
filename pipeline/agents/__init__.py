"""Agents: what the caller talks with, led by a script or by a language model."""
