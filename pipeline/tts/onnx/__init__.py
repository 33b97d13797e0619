"""Neural voices on onnxruntime, in a helper process."""
