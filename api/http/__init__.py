"""What all handlers share: keys, bodies, errors, operations and their document."""
