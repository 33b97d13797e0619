"""Neural voices on onnxruntime, in a process of their own."""
