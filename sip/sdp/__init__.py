"""Session description, offer/answer (RFC 8866, RFC 3264)."""
