"""Request, response bodies as pydantic models."""
