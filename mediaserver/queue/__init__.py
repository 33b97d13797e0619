"""Calls as rows: the dispatch ledger with its rules."""
