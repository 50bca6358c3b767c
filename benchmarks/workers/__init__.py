"""One worker a peer, each running in the peer's own environment. Imports of a peer never leave its worker."""
