"""Rooms: browser sessions over WebRTC, and who is in them."""
