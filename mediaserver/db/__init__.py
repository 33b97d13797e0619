"""SQL on SQLite or PostgreSQL."""
