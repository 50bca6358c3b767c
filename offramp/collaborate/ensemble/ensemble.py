"""Several models of one vocabulary that write one text together, token by token.

    ensemble = Ensemble([load_model("a"), load_model("b")], mode="average", weights=[2, 1])
    print(ensemble.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=20)).text)

A quality method: each token takes every member's whole step, so it costs what all members cost together.
"""

from __future__ import annotations

import operator
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from offramp.collaborate.ensemble.combine import MODES, check_weights, combine
from offramp.collaborate.ensemble.follower import Follower
from offramp.core import Ids, SamplingParams
from offramp.engine.admission import check_ids
from offramp.errors import InvalidRequestError, OfframpError
from offramp.model.detokenizer import StreamingDecoder
from offramp.model.executor import LayerExecutor
from offramp.model.same_vocabulary import first_difference
from offramp.model.stopping import StopMatcher
from offramp.model.tokenizer import Tokenizer
from offramp.native.sampling import sample_rows
from offramp.params import check_choice, refused
from offramp.sample.sampler import RowJob

FRESH_SEED_BITS = 53


class Member(Protocol):
    """A loaded model that serves nobody else meanwhile."""

    @property
    def name(self) -> str: ...
    @property
    def executor(self) -> LayerExecutor: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def max_context(self) -> int: ...
    @property
    def eos_token_ids(self) -> frozenset[int]: ...
    @property
    def bos_token_id(self) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleOutput:
    """What they wrote; `text` has no stop string, `token_ids` the token that completed it, or the end token."""

    text: str
    token_ids: list[int]
    finish_reason: Literal["stop", "length"]
    seed: int


class Ensemble:
    """Not for several threads at once."""

    def __init__(
        self, members: Sequence[Member], *, mode: str = "average", weights: Sequence[float] | None = None
    ) -> None:
        """Raises InvalidRequestError for members without a common vocabulary, naming the first difference."""
        if len(members) < 2:
            raise refused("members", f"{len(members)} of them", "two models or more")
        check_choice("mode", mode, MODES)
        self._mode = MODES[mode]
        self._weights = check_weights(weights, len(members), mode)
        first = members[0]
        for other in members[1:]:
            difference = first_difference(first.tokenizer, other.tokenizer)
            if difference is not None:
                hint = "combine models of one family, or let a committee vote on answers"
                message = f"{other.name} has another vocabulary than {first.name}: {difference}"
                raise InvalidRequestError(message, hint=hint, param="members")
        if len({id(member.executor) for member in members}) < len(members):
            hint = "load a model once for each place that it shall have"
            raise InvalidRequestError("two members share one executor", hint=hint, param="members")
        self._tokenizer = first.tokenizer
        self._bos_token_id = first.bos_token_id
        self._ends = frozenset().union(*(member.eos_token_ids for member in members))
        self._vocab_size = first.tokenizer.vocab_size
        self._max_context = min(member.max_context for member in members)
        self._followers = [Follower(member.executor, self._max_context) for member in members]

    def generate(self, prompt: str | Sequence[int], params: SamplingParams | None = None) -> EnsembleOutput:
        """Continue a text. Options of a whole engine (`n`, logprobs, grammars) are refused by name."""
        params = params or SamplingParams()
        _check_params(params)
        ids = self._tokenizer.encode(prompt) if isinstance(prompt, str) else _ids(prompt)
        if not ids and self._bos_token_id is not None:
            ids = [self._bos_token_id]
        if not ids or len(ids) >= self._max_context:
            raise refused("prompt", f"{len(ids)} tokens", f"1 to {self._max_context - 1} tokens")
        check_ids("prompt", ids, self._vocab_size)
        check_ids("stop_token_ids", params.stop_token_ids, self._vocab_size)
        check_ids("logit_bias", params.logit_bias, self._vocab_size)
        seed = secrets.randbits(FRESH_SEED_BITS) if params.seed is None else params.seed
        return self._write(np.array(ids, dtype=np.int32), params, seed)

    def _write(self, prompt: Ids, params: SamplingParams, seed: int) -> EnsembleOutput:
        room = self._max_context - len(prompt)
        most = room if params.max_tokens is None else min(room, params.max_tokens)
        output: list[int] = []
        finish: Literal["stop", "length"] = "length"
        decoder = StreamingDecoder(self._tokenizer, after=int(prompt[-1]))
        matcher = StopMatcher(tuple(params.stop))
        ends = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._ends)
        text = ""
        while len(output) < most and finish != "stop":
            token = self._next(prompt, output, params, seed)
            output.append(token)
            early = len(output) < params.min_tokens
            if token in ends and not early:
                finish = "stop"
                continue
            shown, stopped = matcher.push(decoder.push(token), passing=early)
            text += shown
            finish = "stop" if stopped else finish
        if not matcher.stopped:
            text += matcher.push(decoder.flush(), passing=True)[0] + matcher.flush()
        return EnsembleOutput(text=text, token_ids=output, finish_reason=finish, seed=seed)

    def _next(self, prompt: Ids, output: list[int], params: SamplingParams, seed: int) -> int:
        tokens = np.concatenate([prompt, np.array(output, dtype=np.int32)])
        rows = [follower.logits(tokens)[: self._vocab_size] for follower in self._followers]
        row = combine(rows, self._mode, self._weights)
        job = RowJob(
            params=params,
            seed=seed,
            position=len(output),
            prompt_ids=prompt,
            output_ids=np.array(output, dtype=np.int32),
            eos_token_ids=self._ends,
        )
        [token] = sample_rows(np.ascontiguousarray(row[None]), [job])
        if isinstance(token, OfframpError):
            raise token
        return token


def _ids(prompt: Sequence[int]) -> list[int]:
    try:
        return [operator.index(token) for token in prompt]
    except TypeError as error:
        raise refused("prompt", prompt, "a text, or a list of token ids") from error


def _check_params(params: SamplingParams) -> None:
    """Refuse what is not honoured here."""
    asked = {
        "n": params.n != 1,
        "logprobs": params.logprobs is not None,
        "prompt_logprobs": params.prompt_logprobs is not None,
        "structured_outputs": params.structured_outputs is not None,
    }
    for name, given in asked.items():
        if given:
            raise refused(name, getattr(params, name), "its default in an ensemble")
