"""Who, or what, answered an outbound call (CPA, AMD)."""
