"""Measures which words the embedded recogniser takes for answers, and which it refuses."""
