"""Recovery after a database was restored from a copy: what this node dialled since the copy was made."""
