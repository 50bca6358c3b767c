from __future__ import annotations

import numpy as np
import pytest

from offramp.model.hidden import ArrayHidden


def test_take_and_concat_copy_and_values_are_read_only() -> None:
    h = ArrayHidden(np.arange(6, dtype=np.float32).reshape(3, 2))
    picked = h.take(np.array([2, 0, 2], np.int32))
    assert picked.numpy().tolist() == [[4, 5], [0, 1], [4, 5]]
    joined = h.concat([picked, h.take(np.array([], np.int32))])
    assert len(joined) == 6
    assert joined.numpy()[3:].tolist() == picked.numpy().tolist()
    assert not np.shares_memory(joined.numpy(), h.numpy())
    with pytest.raises(ValueError, match="read-only"):
        h.numpy()[0, 0] = 1
