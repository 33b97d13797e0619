"""Rooms: WebRTC sessions of browsers and LiveKit SDKs, telephones, and the agent among them."""
