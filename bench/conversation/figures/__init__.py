"""What the recordings of calls come to: outcomes, metrics, tables, pictures."""
