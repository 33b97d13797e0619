"""What one node runs besides its calls: configuration read again, trunks, retention, background loops."""
