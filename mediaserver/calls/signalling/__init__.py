"""What SIP says of a call: chosen header fields, traces of messages and media, and traces as pcap files."""
