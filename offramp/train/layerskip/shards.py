"""A batch in parts, to be computed side by side."""

from __future__ import annotations

from offramp.train.decoder import Batch


def split_batch(batch: Batch, count: int) -> list[Batch]:
    """At most `count` parts of like numbers of samples, in turn: samples that lie together are of like length."""
    parts = min(count, len(batch.tokens))
    return [Batch(batch.prefix, batch.tokens[i::parts], batch.targets[i::parts]) for i in range(parts)]
