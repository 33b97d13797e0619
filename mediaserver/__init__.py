"""The server: settings, store, dispatch, and the calls and rooms of one process."""
