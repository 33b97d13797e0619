"""The numba kernels, each beside a baseline."""
