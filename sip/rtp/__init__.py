"""RTP (RFC 3550) for phone calls, participants."""
