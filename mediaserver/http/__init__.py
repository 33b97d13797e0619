"""The HTTP server: accept loop, caps, deadlines."""
