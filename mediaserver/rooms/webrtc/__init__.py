"""WebRTC transport on aiortc."""
