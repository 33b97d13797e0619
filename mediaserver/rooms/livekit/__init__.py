"""LiveKit's signalling protocol and data packets for unmodified LiveKit SDKs."""
