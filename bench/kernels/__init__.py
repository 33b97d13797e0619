"""Measures the numba kernels, each beside a baseline."""
