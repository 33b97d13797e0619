"""Live calls of this node."""
