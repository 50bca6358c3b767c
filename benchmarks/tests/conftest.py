"""What several benchmarks' tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def unlearned() -> Iterator[None]:
    """The times of toys teach nothing: what is drafted never depends on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offramp.engine.cost.MeasuredCosts.observe", lambda *args, **kwargs: None)
        yield
