"""Turn-taking measured on scripted callers."""
