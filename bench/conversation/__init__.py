"""Measures turn-taking with scripted callers."""
