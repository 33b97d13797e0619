"""Parses SIP messages (RFC 3261 sections 7 and 25)."""
