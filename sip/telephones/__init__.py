"""Telephones that users register, and calls that ring all of one user."""
