"""The phone: SIP signalling as a sans-IO stack, RTP media, and calls that read like phone calls."""
