"""The audio pipeline of one conversation: frames in, turns, engines, frames out.

Nothing in this package opens a socket (its `engines` excepted) or knows what SIP or WebRTC is: a phone call
and a room participant both reach it as a `pipeline.leg.Leg`.
"""
