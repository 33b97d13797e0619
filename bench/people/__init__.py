"""Recorded people, understood by local engines."""
