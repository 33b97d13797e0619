"""The media plane: RTP of many streams in compiled code that needs no Python between packets."""
