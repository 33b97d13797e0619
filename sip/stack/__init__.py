"""The sans-IO stack on asyncio sockets."""
