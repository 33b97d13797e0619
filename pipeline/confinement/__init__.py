"""Confinement of processes that read strangers' input: Landlock, seccomp, limits."""
