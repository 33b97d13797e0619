"""`mediaserver bench`: calls to any SIP address or to one's own agent, and what a caller hears, measured."""
