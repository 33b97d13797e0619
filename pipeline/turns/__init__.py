"""Turn-taking between caller and agent: a state machine, its table, its events and effects."""
