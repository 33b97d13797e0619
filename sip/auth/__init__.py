"""SIP digest authentication (RFC 8760), of both sides."""
