"""Dialogs with their usages (RFC 3261 §12–15, RFC 5057)."""
