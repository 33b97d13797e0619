"""Every row as an asynchronous verb."""
