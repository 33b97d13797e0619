"""What this node takes on: rate limits, overload, disk, descriptors."""
