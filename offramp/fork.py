"""What the child of a fork does first: only the thread that forked goes on there, so no lock is ever let go."""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakMethod


def in_child(renew: Callable[[], None]) -> None:
    """Call a method of an object in every child of a fork, while the object lives."""
    method = WeakMethod(renew)

    def act() -> None:
        alive = method()
        if alive is not None:
            alive()

    os.register_at_fork(after_in_child=act)
