"""Benchmarks, run from the checkout: `python -m bench --help`. JSON and pictures go to results/."""
