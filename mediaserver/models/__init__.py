"""Model weights on disk and where they are fetched from."""
