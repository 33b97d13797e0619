"""Frames on the clock of a call: pacer, playout, reordering, mixing, recording."""
