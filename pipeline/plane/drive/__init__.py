"""What runs the streams: sockets, time and threads around `pipeline.plane.step`."""
