"""Shares authentication, bodies, errors and the OpenAPI document between the handlers."""
