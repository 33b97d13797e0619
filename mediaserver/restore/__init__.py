"""A database put back from a copy: what this node dialled meanwhile."""
