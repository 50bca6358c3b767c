"""`offramp train router`: from recorded outcomes to a router pack. Needs no torch."""
