"""Training drafters: a side layer over the target's hidden states, on the target's own answers."""
