"""Measures WebRTC participants beside stock aiortc."""
