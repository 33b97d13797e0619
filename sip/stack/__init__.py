"""Runs the sans-IO SIP layers on asyncio sockets."""
