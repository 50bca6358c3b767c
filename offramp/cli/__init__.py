"""The command line. Data goes to stdout, everything else to stderr; modules load the engine only when they run it."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `offramp` command."""
    from offramp.cli.app import run

    sys.exit(run(sys.argv[1:]))
