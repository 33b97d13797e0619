"""Trains the micro-Whisper of the demo: `python -m bench.micro_whisper --help`."""
