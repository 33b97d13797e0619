"""What all handlers share."""
