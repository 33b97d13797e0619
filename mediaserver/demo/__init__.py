"""The demo: an agent calls a softphone on another SIP stack on this machine, and they talk."""
