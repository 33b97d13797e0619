"""A model that hears and speaks by itself, over the OpenAI Realtime protocol."""
