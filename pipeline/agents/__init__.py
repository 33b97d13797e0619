"""Agents: what answers the caller."""
