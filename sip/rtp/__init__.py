"""RTP (RFC 3550) of phone calls: codecs, ports, receiver, sender, RTCP, telephone events."""
