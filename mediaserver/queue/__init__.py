"""The call queue: the dispatch ledger, its rules, batches, and webhook deliveries."""
