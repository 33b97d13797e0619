"""The pocketsphinx decoder and its dictation process."""
