"""A call handed over: briefing, outbound leg, bridge, REFER to the carrier, and REFER from the far end."""
