"""Live calls of this node: dispatch, inbound, the conversation, transfers."""
