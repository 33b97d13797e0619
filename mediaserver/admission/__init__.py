"""Admission: rate limits, overload, disk and descriptors of this node."""
