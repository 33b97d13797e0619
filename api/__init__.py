"""The HTTP face: parse, one call of `mediaserver.server.Server`, serialise."""
