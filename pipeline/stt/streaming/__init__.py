"""Recognisers behind websockets, described by data: one socket a call."""
