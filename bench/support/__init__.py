"""What benchmarks share with tests."""
