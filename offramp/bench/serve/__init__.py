"""Load on an OpenAI-compatible server, bounded in requests and time, and what its clients measure."""
