"""Handlers of the management API."""
