"""What a drafter with logits proposes: the token that plain decoding would draw from them.

A draw depends on distribution, seed, choice and position alone. With the target's own noise a draft stands more often
than one drawn freely would: where the two distributions agree, so do the draws. The rejection verifier wants free draws
of sampled sequences, with their laws, and no word of the token drawn before it is settled that the draft runs: there
`sure` is the law's, not the token's. Under a grammar a chain takes along a matcher of its own, so what it draws is what
may come there.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from offramp.core import REJECTION, DraftAsk, Matcher, SamplingParams, TokenTree, Verdict
from offramp.draft.plans import Judged
from offramp.errors import OfframpError
from offramp.sample.distribution import Probabilities, distribution, draw_from
from offramp.sample.race import NoiseKey, draft_draw
from offramp.sample.sampler import RowJob, job_behind

SampleRows = Callable[[NDArray[np.float32], Items[RowJob]], list[int | OfframpError]]
"""logits [rows, vocab] and one job a row -> a token or an error for each row."""
Allowed = NDArray[np.bool_] | None
"""[vocab], what a grammar lets come next; None without one."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A token, and how sure of it the drafter may say it is, in [0, 1]."""

    token: int
    sure: float
    law: Probabilities | None = None  # of a free draw


@dataclass(slots=True, eq=False)
class DraftChain:
    """A chain as it grows behind one ask."""

    ask: DraftAsk
    token_ids: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    laws: list[Probabilities] = field(default_factory=list)  # of all tokens, where they are drawn freely
    chance: float = 1.0  # that all of it stands
    refused: bool = False  # the latest round brought it no token
    allowed: Allowed = None  # what the grammar lets come next, as of the latest draw
    _matcher: Matcher | None = field(init=False)  # follows the chain: the ask's own until there is a token

    def __post_init__(self) -> None:
        self._matcher = self.ask.matcher

    @property
    def is_free(self) -> bool:
        """Its tokens are drawn freely."""
        return self.ask.drafting.verifier == REJECTION and not self.ask.greedy

    @property
    def room(self) -> int:
        """Tokens that may still follow; none behind one that ends the sequence."""
        ask = self.ask
        if self.token_ids and (_ends(ask, self.token_ids[-1]) or (self._matcher is not None and self._matcher.ended)):
            return 0
        return min(ask.max_nodes, ask.max_depth) - len(self.token_ids)

    def look(self) -> OfframpError | None:
        """Ask the grammar what may come next; the error where it can't go on."""
        if self._matcher is not None:
            try:
                self.allowed = self._matcher.allowed()
            except OfframpError as error:
                return error
        return None

    def append(self, drawn: Drawn, score: float) -> None:
        token = drawn.token
        self.refused = False
        self.token_ids.append(token)
        self.scores.append(score)
        if drawn.law is not None:
            self.laws.append(drawn.law)
        self.chance *= score
        if self._matcher is not None:
            if self._matcher is self.ask.matcher:
                self._matcher = self._matcher.fork()
            self._matcher.advance(token)

    def job(self) -> RowJob:
        assert self.ask.sequence is not None, "an ask of an engine names its sequence"
        return job_behind(self.ask.sequence, self.token_ids, self.allowed)

    def judged(self, num_stood: int, verdict: Verdict) -> Judged:
        """Rounds that brought a token that stood, and with them the next one, if it ran.

        A round that brought nothing took as long as one whose token fell. A token that stood but was not verified came
        from the target.
        """
        ran = len(self.token_ids) + self.refused
        tested = min(ran, num_stood + (len(verdict.token_ids) > num_stood))
        return Judged(num_stood, tested, min(num_stood, len(verdict.accepted)))

    def tree(self) -> TokenTree:
        chain = TokenTree.chain(self.token_ids, self.scores)
        return replace(chain, laws=tuple(self.laws)) if self.laws else chain


def draw(sample_rows: SampleRows, logits: NDArray[np.float32], chains: Items[DraftChain]) -> list[Drawn | OfframpError]:
    """The next token of each chain from logits [chains, vocab]; an error where none can come."""
    errors = [chain.look() for chain in chains]
    able = [index for index, error in enumerate(errors) if error is None]
    jobs = [chains[index].job() for index in able]
    tokens = sample_rows(logits if len(able) == len(chains) else logits[able], jobs) if able else ()
    drawn = {
        index: token if isinstance(token, OfframpError) else _drawn(logits[index], chains[index], job, token)
        for index, job, token in zip(able, jobs, tokens, strict=True)
    }
    return [drawn[index] if error is None else error for index, error in enumerate(errors)]


def _drawn(row: NDArray[np.float32], chain: DraftChain, job: RowJob, token: int) -> Drawn:
    """The target's own draw, or a free one in its stead."""
    if not chain.is_free:
        return Drawn(token, confidence(row, token, chain.allowed))
    law = distribution(row, job)
    key = NoiseKey(seed=job.seed, choice=job.choice, position=job.position)
    return Drawn(draw_from(law, key, draft_draw(len(chain.token_ids))), float(law.max()), law)


def confidence(logits: NDArray[np.float32], token: int, allowed: Allowed = None) -> float:
    """The token's probability in a row of raw logits [vocab], among the allowed ones, in [0, 1]."""
    if allowed is not None:
        logits = np.where(allowed, logits, np.float32(-np.inf))
    shifted = np.exp(logits - logits.max())
    return float(shifted[token] / shifted.sum())


def is_plain_greedy(ask: DraftAsk) -> bool:
    """The likeliest token is the one drawn: nothing changes its logits before."""
    if ask.sequence is None or ask.matcher is not None:
        return False
    params, output_len = ask.sequence.request.params, ask.sequence.output_len
    return params.greedy and not _changes_logits(params) and output_len >= params.min_tokens


def _changes_logits(params: SamplingParams) -> bool:
    penalties = params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0
    return bool(params.logit_bias or penalties)


def _ends(ask: DraftAsk, token: int) -> bool:
    """The token would end the sequence, wherever it stands."""
    if ask.sequence is None:
        return False
    request = ask.sequence.request
    params = request.params
    return token in params.stop_token_ids or (not params.ignore_eos and token in request.eos_token_ids)
