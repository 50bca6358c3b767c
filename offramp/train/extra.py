"""Getting torch ready. Training alone needs it, and it comes with an extra."""

from __future__ import annotations

import os
from importlib.util import find_spec

from offramp.errors import ResourceError


def ready_torch() -> None:
    """To be called before anything imports torch. Raises ResourceError, naming the extra to install, where it is not.

    Its threads are told to sleep while they wait, unless the user said otherwise: spinning ones take the processor from
    each other as soon as anything else runs.
    """
    if find_spec("torch") is None:
        raise ResourceError(
            "training needs torch, which is not installed",
            hint="install the extra: pip install 'offramp[train]', in a checkout '.[train]'",
        )
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
