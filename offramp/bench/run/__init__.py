"""Methods measured: each in a process of its own, turn by turn, round by round."""
