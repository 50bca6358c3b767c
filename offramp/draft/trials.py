"""Whose drafting goes on: by what it brought and took, not by what was predicted.

What a step's drafting gained a text is counted in tokens: those that stood, less what its time would have brought in
plain steps. A text falls asleep once it has lost `MOST_LOST` since it stood best, or twice that while drafts are still
predicted to pay: so one bad step ends nothing, and no stretch of text costs more. It wakes after `PATIENCE` steps,
after twice as many each time that it falls asleep again, and only where the allowance of all texts has it. So what
drafting loses is at most `SHARE` of the tokens, `GAIN_SHARE` of what it gained, and a constant for each text at work.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_LOST = 2.0
"""Tokens."""
SHARE = 0.02
"""Of all tokens, that may be lost for nothing."""
GAIN_SHARE = 0.5
"""Of what drafting gained, that trials may lose again."""
MOST_SAVED = 4 * MOST_LOST
PATIENCE, LONGEST_PATIENCE = 32, 1024
"""Steps that a text sleeps."""
WARM_UP = 16
"""Steps before a text wakes in which what drafting looks at is collected."""


class Allowance:
    """What one drafter may still lose, over all texts; in tokens."""

    def __init__(self) -> None:
        self._saved = 2 * MOST_LOST

    @property
    def is_enough(self) -> bool:
        """For a trial."""
        return self._saved >= MOST_LOST

    @property
    def is_overdrawn(self) -> bool:
        """Not even predictions are to be trusted."""
        return self._saved <= -MOST_SAVED

    def trusts(self, promising: bool) -> bool:
        """That drafts pay is predicted, and predictions are to be trusted."""
        return promising and not self.is_overdrawn

    def begins_awake(self, promising: bool) -> bool:
        """A new text is drafted for: on trust, or because a trial is affordable."""
        return self.is_enough or self.trusts(promising)

    def add(self, num_tokens: float) -> None:
        """Saved, or where it is negative lost."""
        self._saved = min(MOST_SAVED, self._saved + num_tokens)


@dataclass(slots=True)
class TextTrial:
    """Of one text: whether drafting goes on there. `stake` of the allowance is taken already."""

    awake: bool = False
    _stake: float = 0.0
    _lost: float = 0.0  # tokens, since it stood best
    _idle: int = 0  # steps asleep
    _patience: int = PATIENCE

    @classmethod
    def begin(cls, allowance: Allowance, *, promising: bool) -> TextTrial:
        """Awake where `Allowance.begins_awake` says so; on trust it takes no stake."""
        trial = cls()
        if allowance.trusts(promising):
            trial.awake = True
        elif allowance.is_enough:
            trial._wake(allowance)
        return trial

    @property
    def soon(self) -> bool:
        """It may wake within `WARM_UP` steps."""
        return not self.awake and self._idle + WARM_UP >= self._patience

    def settle(self, gain: float, allowance: Allowance, *, pays: bool) -> None:
        """A step's drafting gained so many tokens, or lost them. `pays`: more are predicted to gain."""
        allowance.add(GAIN_SHARE * gain)
        self._lost = max(0.0, self._lost - gain)
        if self._lost > (2 * MOST_LOST if pays else MOST_LOST):
            self.end(allowance)

    def sleep(self, allowance: Allowance) -> None:
        """A step asleep; it may be the last."""
        self._idle += 1
        if self._idle > self._patience and allowance.is_enough:
            self._patience = min(LONGEST_PATIENCE, 2 * self._patience)
            self._wake(allowance)

    def end(self, allowance: Allowance) -> None:
        """It falls asleep, or its text ended."""
        allowance.add(self._stake - (1 - GAIN_SHARE) * self._lost)  # the other part was taken as it was lost
        self.awake, self._stake, self._lost, self._idle = False, 0.0, 0.0, 0

    def _wake(self, allowance: Allowance) -> None:
        allowance.add(-MOST_LOST)
        self.awake, self._stake = True, MOST_LOST
