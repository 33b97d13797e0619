"""Ports, clocks and database servers that benchmarks and tests start."""
