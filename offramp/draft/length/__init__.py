"""How long a draft may be: one controller a file."""
