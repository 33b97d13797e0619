"""What the embedded recogniser takes and refuses."""
