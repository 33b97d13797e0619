"""The audio pipeline of a conversation: received frames, turn-taking, engines, frames to be sent.

This package has no SIP and no WebRTC, and only its engines open sockets: a phone call and a room participant
are both a `pipeline.leg.Leg`.
"""
