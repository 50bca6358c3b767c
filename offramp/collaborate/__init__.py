"""More than one model: who answers, the little one or the big one, and what several say together."""
