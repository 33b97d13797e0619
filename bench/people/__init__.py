"""Measures how local engines understand recorded people."""
