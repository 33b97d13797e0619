"""WebRTC participants measured beside stock aiortc."""
