"""Voices behind websockets, described by data: text in as it is written, one socket a call."""
