"""SIP messages on the wire (RFC 3261 §7, §25)."""
