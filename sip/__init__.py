"""SIP signalling as a sans-IO stack, RTP media, and an asyncio API for phone calls."""
