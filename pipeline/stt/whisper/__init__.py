"""Whisper models in a process of their own, shared by all calls."""
