"""Management while the server runs."""
