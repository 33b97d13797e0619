"""A server of tools made with the protocol's own SDK, in a process of its own: prints its port and serves."""

from __future__ import annotations

import socket

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")


@server.tool()
def find_order(number: int) -> str:
    """Where an order is."""
    return f"order {number} comes on monday"


@server.tool()
def cancel_order(number: int, reason: str = "") -> str:
    """Cancels an order."""
    raise ValueError("cannot be cancelled")


@server.tool()
def delete_everything() -> str:
    """Nobody should."""
    return "deleted"


if __name__ == "__main__":
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        print(listening.getsockname()[1], flush=True)
        app = server.streamable_http_app()
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
