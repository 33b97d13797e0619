"""How the micro-Whisper of the demo was trained; see `python -m bench.micro_whisper --help`."""
