"""What a run leaves: raw lines as they come, and the figures that they add up to."""
