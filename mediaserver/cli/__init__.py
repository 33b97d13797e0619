"""The commands of `mediaserver`, one file for each group."""
