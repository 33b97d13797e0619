"""LiveKit's signalling protocol, sans-IO."""
