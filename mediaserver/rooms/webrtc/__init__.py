"""WebRTC transport: peer connections by aiortc, audio by libopus on one UDP port."""
