"""Several models that answer together. For quality, not speed: what they cost adds up."""
