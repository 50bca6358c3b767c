"""Drafting against plain decoding: our own methods, several streams at once, and peers' prompt lookup beside them."""
