"""The tools that a language model may call: built in, over HTTP, of MCP servers; their schemas."""
