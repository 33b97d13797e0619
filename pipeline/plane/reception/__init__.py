"""RTP in: from a datagram to frames of 20 ms, and what is noticed in them."""
