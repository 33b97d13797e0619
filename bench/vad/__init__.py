"""Voice detectors compared on recorded people."""
