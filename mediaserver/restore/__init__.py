"""Copies of what a node keeps, made and put back, and what this node dialled since a copy was made."""
