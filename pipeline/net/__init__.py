"""HTTP to servers of third parties, protected against SSRF."""
