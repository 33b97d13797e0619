"""Text-to-speech engines (`pipeline.speech.TextToSpeech`), in the server and in processes beside it."""
