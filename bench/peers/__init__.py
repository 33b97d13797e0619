"""Other voice agent frameworks beside this server, with the same stub models."""
