"""Tests candidates on the calibration prompts: real answers under each policy, in order, until one fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np

from offramp.calibrate.answers import Answer, Rig, Tell, answer_all
from offramp.calibrate.candidates import MAX_POINTS, Candidate, P, rising
from offramp.calibrate.gain import measured_gain
from offramp.calibrate.losses import FullAnswers, Loss
from offramp.calibrate.prompts import CalibrationPrompt
from offramp.exits.calibration import Losses, Walk, fixed_sequence
from offramp.exits.path import REACH

Stage = Callable[[str], Tell]
"""Says that something of that name begins; what it returns is told how far it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """What the calibration prompts came to under one policy."""

    losses: Losses  # [prompts]
    depth: float  # mean layers a token
    little_share: float  # of the tokens, written by a little model


MOST_REHEARSED = 10
"""Candidates that are tried on tuning prompts for one risk."""


class Tester(Generic[P]):
    """Answers all calibration prompts under one policy after another; none twice."""

    def __init__(
        self,
        rig: Rig,
        names: Mapping[P, str],
        prompts: Sequence[CalibrationPrompt],
        loss: Callable[[FullAnswers], Loss],
        stage: Stage,
        whose: str,
    ) -> None:
        """`names` are those by which the rig's engine knows the policies; `loss` may ask for full depth's answers."""
        self._whose = whose
        self._rig = rig
        self._names = names
        self._prompts = prompts
        self._stage = stage
        self._full: list[Answer] | None = None
        self._ran: dict[P, Ran] = {}
        self._loss = loss(self._full_answers)

    def rehearsed(self, candidates: Sequence[Candidate[P]], risk: float) -> list[Candidate[P]]:
        """Those that keep near the risk, with the losses that they really have here; safest first."""
        kept: list[Candidate[P]] = []
        some = thinned(rising(candidates), MOST_REHEARSED)
        for number, each in enumerate(some, 1):
            loss = float(self.ran(each.policy, f"risk {risk:g}, candidate {number} of {len(some)}").losses.mean())
            if loss > REACH * risk:
                break
            kept.append(replace(each, loss=loss))
        return thinned(rising(kept), MAX_POINTS)

    def walk(self, path: Sequence[Candidate[P]], risk: float, delta: float) -> Walk[Candidate[P]]:
        """Those that keep the risk, and the first that does not."""
        names = {each.policy: f"risk {risk:g}, policy {number} of {len(path)}" for number, each in enumerate(path, 1)}
        return fixed_sequence(path, lambda each: self.ran(each.policy, names[each.policy]).losses, risk, delta)

    def ran(self, policy: P, what: str) -> Ran:
        """Losses and depth, from really generated answers; `what` names the policy for those who wait."""
        if policy not in self._ran:
            tell = self._stage(f"{what}: answering {self._whose} prompts")
            answers = answer_all(self._rig, self._prompts, self._names[policy], tell)
            losses = self._loss(answers, self._stage(f"{what}: comparing with full depth"))
            depth = float(np.concatenate([answer.layers for answer in answers]).mean())
            share = sum(answer.num_little for answer in answers) / sum(map(len, answers))
            self._ran[policy] = Ran(losses, depth, share)
        return self._ran[policy]

    def depth(self, policy: P) -> float:
        """Mean layers a token of a policy that ran."""
        return self._ran[policy].depth

    def little_share(self, policy: P) -> float:
        """Share of the tokens that a little model wrote under a policy that ran."""
        return self._ran[policy].little_share

    def gain(self, policy: P, risk: float) -> float:
        """Decoding speed at one stream over that of full depth, timed."""
        tell = self._stage(f"risk {risk:g}: timing its fastest policy at one stream")
        return measured_gain(self._rig, self._prompts, self._names[policy], tell)

    def _full_answers(self) -> list[Answer]:
        if self._full is None:
            self._full = answer_all(
                self._rig, self._prompts, None, self._stage(f"answering {self._whose} prompts at full depth")
            )
        return self._full


def thinned(candidates: Sequence[Candidate[P]], most: int) -> list[Candidate[P]]:
    """At most so many, evenly spread, the first and the last among them."""
    if len(candidates) <= most:
        return list(candidates)
    return [candidates[index] for index in np.linspace(0, len(candidates) - 1, most).round().astype(int)]
