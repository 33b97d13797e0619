"""SIP digest authentication (RFC 8760) as client and as server."""
