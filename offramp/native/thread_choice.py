"""How many threads a small step uses, learnt from the steps themselves.

A step of few rows has some 150 barriers a few microseconds apart. On an idle machine all threads help; beside a busy
neighbour each barrier may wait for a thread that lost its core, and one thread alone is several times as fast. Nobody
can know in advance, so the executor tries. The bits of a result don't depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ADAPTIVE_ROWS = 16
"""Steps of more rows always use all threads: they are bound by arithmetic and meet barriers seldom."""

PROBE_CALLS = 3  # calls that try another count before it is judged; the first is not counted: its caches are cold
FIRST_WAIT = 4  # calls before the first try
FIRST_INTERVAL = 16  # calls between two tries at first; then longer and longer
LONGEST_INTERVAL = 1024  # a try may cost several times a call: then under 1 % in all
LONGEST_CROWDED = 256  # the same while fewer threads than all are in use: neighbours go as they come
GAIN = 0.95  # switch only for a clear gain
CROWDED = 1.5  # fewer threads are never faster by that much but for a neighbour
WORSE = 1.3  # what the count in use may get slower by before others are tried at once
SMOOTHING = 0.25


@dataclass(slots=True)
class _Steps:
    """What is known about steps of about the same number of rows."""

    index: int  # of the count in use
    seconds: dict[int, float] = field(default_factory=dict)  # smoothed, by index
    reference: float | None = None  # of the count in use when others were last tried
    probe: int | None = None  # index being tried
    probe_calls: int = 0
    upward: bool = False  # direction of the next try
    interval: int = FIRST_INTERVAL
    next_try: int = FIRST_WAIT  # by the number of calls of any size


class ThreadChoice:
    """Chooses among 1, 2, 4, ... up to `most` threads, separately for 1, 2, 3-4, 5-8 and 9-16 rows."""

    def __init__(self, most: int) -> None:
        self.counts: list[int] = sorted({*(1 << i for i in range(most.bit_length())), most})
        self._steps: dict[int, _Steps] = {}
        self._calls = 0

    def choose(self, num_rows: int) -> int:
        """The number of threads for the next call of so many rows."""
        if num_rows > ADAPTIVE_ROWS:
            return self.counts[-1]
        steps = self._of(num_rows)
        return self.counts[steps.index if steps.probe is None else steps.probe]

    def observe(self, num_rows: int, seconds: float) -> None:
        """What a call with the chosen number took, in seconds a layer."""
        if num_rows > ADAPTIVE_ROWS or len(self.counts) == 1:
            return
        self._calls += 1
        steps = self._of(num_rows)
        if steps.probe is None:
            self._observe_use(steps, seconds)
        else:
            self._observe_probe(steps, seconds)

    def _of(self, num_rows: int) -> _Steps:
        size = (num_rows - 1).bit_length()
        if size not in self._steps:
            self._steps[size] = _Steps(len(self.counts) - 1, next_try=self._calls + FIRST_WAIT)
        return self._steps[size]

    def _observe_use(self, steps: _Steps, seconds: float) -> None:
        smooth = self._smooth(steps, steps.index, seconds)
        if steps.reference is not None and smooth > WORSE * steps.reference:
            steps.next_try = self._calls
            steps.interval = FIRST_INTERVAL
        if self._calls >= steps.next_try:
            steps.probe, steps.probe_calls = self._neighbour(steps), 0
            steps.seconds.pop(steps.probe, None)

    def _observe_probe(self, steps: _Steps, seconds: float) -> None:
        assert steps.probe is not None
        steps.probe_calls += 1
        if steps.probe_calls > 1:
            self._smooth(steps, steps.probe, seconds)
        if steps.probe_calls <= PROBE_CALLS:
            return
        if steps.seconds[steps.probe] < GAIN * steps.seconds[steps.index]:
            if steps.probe > steps.index or CROWDED * steps.seconds[steps.probe] < steps.seconds[steps.index]:
                self._tell_others(steps, steps.probe)
            steps.index, steps.interval = steps.probe, FIRST_INTERVAL
        else:
            steps.upward = not steps.upward
            crowded = steps.index < len(self.counts) - 1
            steps.interval = min(2 * steps.interval, LONGEST_CROWDED if crowded else LONGEST_INTERVAL)
        steps.probe = None
        steps.next_try = self._calls + steps.interval
        steps.reference = steps.seconds[steps.index]

    def _tell_others(self, found: _Steps, index: int) -> None:
        """A neighbour came or went: sizes that are rarely called take over what a frequent one found out."""
        for steps in self._steps.values():
            if steps is not found and (steps.index < index) == (found.index < index) and steps.index != index:
                steps.index, steps.probe, steps.reference, steps.interval = index, None, None, FIRST_INTERVAL
                steps.next_try = self._calls + FIRST_INTERVAL
                steps.seconds.pop(index, None)

    def _neighbour(self, steps: _Steps) -> int:
        other = steps.index + (1 if steps.upward else -1)
        return other if 0 <= other < len(self.counts) else steps.index + (-1 if steps.upward else 1)

    @staticmethod
    def _smooth(steps: _Steps, index: int, seconds: float) -> float:
        old = steps.seconds.get(index, seconds)
        steps.seconds[index] = old + SMOOTHING * (seconds - old)
        return steps.seconds[index]
