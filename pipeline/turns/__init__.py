"""The turn-taking state machine."""
