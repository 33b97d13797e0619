"""What an operator reads of a server: log lines and metrics."""
