"""Locks processes in that read what strangers sent."""
