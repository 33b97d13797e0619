"""Text normalisation in both directions (TN, ITN)."""
