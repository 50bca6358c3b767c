"""Early exits against our own full depth: a parser trained for them, several streams at once, and the default model."""
