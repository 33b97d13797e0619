"""Frames on the clock of a call."""
