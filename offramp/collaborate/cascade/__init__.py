"""The little model answers; how sure it was of that decides whether the big one answers anew."""
