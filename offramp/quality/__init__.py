"""How good an answer is, or how near to another: pure functions of texts and token ids."""
