"""Serves the REST API: a handler parses a request, calls `mediaserver.server.Server` once and serialises."""
