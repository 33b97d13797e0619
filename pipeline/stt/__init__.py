"""Speech-to-text engines (`pipeline.speech.SpeechToText`), and falling back from one to the next."""
