"""Whisper models in a helper process, shared by all calls."""
