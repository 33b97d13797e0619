"""Text-to-speech and speech-to-text for HTTP clients, outside of any call."""
