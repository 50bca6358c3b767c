"""Training students: shallow models made of some of the target's layers, taught to draft for it."""
