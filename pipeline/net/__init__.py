"""HTTP to other people's servers, SSRF-safe."""
