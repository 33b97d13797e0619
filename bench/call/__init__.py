"""Measures phone calls from outside the server."""
