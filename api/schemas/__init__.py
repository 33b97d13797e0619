"""Defines the request and response bodies as pydantic models."""
