"""The database as asynchronous methods, with the rows of what the server is configured with."""
