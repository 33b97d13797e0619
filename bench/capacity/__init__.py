"""Measures how many calls one core carries, and what callers hear while Python stands still."""
