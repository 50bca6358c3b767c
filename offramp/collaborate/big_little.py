"""Big-little decoding: a little model writes, the big one reads along and takes over where it would not have said so.

What: the little model writes behind the text until it is unsure or has written enough; in the same step the big model
runs all of it in one pass and judges it (`big_little_verifier.py`). K/V are the big model's own for every token, so
they are exact, and prefixes may be shared with any other request.
When it helps: a little model that is several times faster. It pays more than drafting with the same model, since also
tokens stand that the big model would not have drawn, but finds likely enough.
Cost: a pass of the little model for each token that it writes, the last unsure one included; a row of the big one each.
Exactness: lossy; lossless where the policy's rollback limit is 0. A broken little model writes no more, which loses
nothing either.
Source: Big Little Decoder (arXiv 2302.07863).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from offramp.collaborate.big_little_policy import BigLittlePolicy
from offramp.collaborate.big_little_verifier import WrittenPlace, judge_written
from offramp.collaborate.big_little_writer import LittleWriter, Writing
from offramp.core import NO_DRAFT, DraftAsk, Ids, Place, Sequence, SequenceKey, TokenTree, Verdict
from offramp.draft.failures import FAILURES
from offramp.verify.exact import SampleRows

log = logging.getLogger("offramp.collaborate")


@dataclass(slots=True)
class _State:
    """Of one sequence."""

    run_len: int = 0  # tokens that the little model wrote since the big one's latest
    token_ids: tuple[int, ...] = ()  # that it wrote behind the present text


class BigLittle:
    """`offramp.core.Little` over a writer; requests name one of the policies."""

    def __init__(
        self, writer: LittleWriter, policies: Mapping[str, BigLittlePolicy], *, sample_rows: SampleRows
    ) -> None:
        self._writer = writer
        self._policies = dict(policies)
        self._sample_rows = sample_rows
        self._states: dict[SequenceKey, _State] = {}
        self._broken = False

    @property
    def policies(self) -> Collection[str]:
        return self._policies.keys()

    def read(self, texts: Items[tuple[SequenceKey, Ids]]) -> None:
        if self._broken:
            return
        try:
            self._writer.read(texts)
        except FAILURES as error:
            self._fail(error)

    def propose(self, asks: Items[DraftAsk]) -> list[TokenTree]:
        writings = {ask.key: writing for ask in asks if (writing := self._begin(ask)) is not None}
        try:
            self._writer.write(list(writings.values()))
        except FAILURES as error:
            self._fail(error)
            writings = {}
        trees = [writings[ask.key].tree() if ask.key in writings else NO_DRAFT for ask in asks]
        for ask, tree in zip(asks, trees, strict=True):
            self._state(ask.key).token_ids = tree.token_ids
        return trees

    def judge(self, places: Items[Place], logits: NDArray[np.float32]) -> list[Verdict]:
        written = [
            WrittenPlace(
                place,
                self._states[place.sequence.key].token_ids,
                self._policy_of(place.sequence).rollback,
            )
            for place in places
        ]
        return judge_written(written, logits, self._sample_rows)

    def observe(self, ask: DraftAsk, tree: TokenTree, verdict: Verdict) -> None:
        state, written = self._state(ask.key), verdict.written
        assert written is not None, "a verdict of our own"
        own_alone = written.num_little == len(verdict.token_ids)  # what was written had no room, and goes on
        state.run_len = state.run_len + written.num_little if own_alone else 0

    def forget(self, sequence: Sequence) -> None:
        self._states.pop(sequence.key, None)
        self._writer.drop(sequence.key)

    def _begin(self, ask: DraftAsk) -> Writing | None:
        """What the little model shall write; None where it has nothing to say. One token more than has room."""
        assert ask.sequence is not None, "an ask of an engine names its sequence"
        if self._broken:
            return None
        policy = self._policy_of(ask.sequence)
        if not policy.writes:
            return None
        left = policy.max_run - self._state(ask.key).run_len
        room = min(left, min(ask.max_nodes, ask.max_depth) + 1, self._writer.room(ask.token_ids))
        if room <= 0:
            return None
        return Writing(replace(ask, max_nodes=room, max_depth=room), fallback=policy.fallback)

    def _policy_of(self, sequence: Sequence) -> BigLittlePolicy:
        name = sequence.request.big_little
        assert name is not None, "a request without a policy"
        return self._policies[name]

    def _state(self, key: SequenceKey) -> _State:
        return self._states.setdefault(key, _State())

    def _fail(self, error: Exception) -> None:
        log.warning("the little model failed and writes no more: %s", error)
        self._broken = True
        self._writer.clear()
