"""Telephone numbers: their forms, patterns of them, and the hours in which they may be called."""
