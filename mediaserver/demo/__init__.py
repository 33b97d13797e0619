"""The main job, shown on one machine: an agent calls a softphone on another SIP stack, and they talk."""
