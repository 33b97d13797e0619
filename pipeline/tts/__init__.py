"""Text-to-speech engines."""
