"""What is kept of people: retention, erasure, legal holds, and the audit log."""
