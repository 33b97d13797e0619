"""Implements the transaction layer (RFC 3261 section 17)."""
