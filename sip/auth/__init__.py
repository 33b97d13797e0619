"""Digest authentication (RFC 8760)."""
