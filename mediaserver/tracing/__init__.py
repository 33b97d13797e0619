"""The spans of calls, for OpenTelemetry: what a call spent its time on, as traces of a collector."""
