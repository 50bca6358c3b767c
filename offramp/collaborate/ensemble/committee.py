"""Several models that each answer, and a vote.

What: all members are asked at the same time; the answer that most of them give wins, of equally many the one with the
most weight, then that of the earlier member. Who has no answer when the time is up is stopped, and does not vote: a
step that it is in the middle of ends on its own, and nobody waits for that.
When it helps: short answers that are right or wrong. Members may have different vocabularies.
Cost: every member's whole answer; on one machine they share its cores.
Exactness: the answer is word for word one of a member's.
Source: textbook (plurality vote).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from offramp.core import SamplingParams
from offramp.errors import OfframpError, ResourceError
from offramp.params import check_number, refused

Message = Mapping[str, object]
LONGEST = 1e6
POLL_SECONDS = 0.05


class Delta(Protocol):
    """A piece of an answer."""

    @property
    def text(self) -> str: ...
    @property
    def error(self) -> OfframpError | None: ...


class Stream(Protocol):
    """An answer while it is written."""

    def __iter__(self) -> Iterator[Delta]: ...

    def close(self) -> None:
        """Write no further. Never waits, and may be called while another thread reads, whose reading then ends."""
        ...


class Speaker(Protocol):
    """Whoever answers conversations: an `LLM`."""

    def stream_chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> Stream: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The winning answer, and who gave which; members are named by their place."""

    text: str
    votes: Mapping[str, tuple[int, ...]]  # ballot -> members
    texts: Mapping[int, str]  # whole answers
    late: tuple[int, ...]  # stopped when the time was up
    failed: Mapping[int, BaseException]


def plain_ballot(text: str) -> str:
    """The answer without case and spare blanks: what counts as the same."""
    return " ".join(text.casefold().split()).rstrip(".")


def vote(
    texts: Mapping[int, str], weights: Sequence[float], ballot: Callable[[str], str] = plain_ballot
) -> tuple[int, dict[str, tuple[int, ...]]]:
    """The member whose answer wins, and the votes. There is at least one text."""
    votes: dict[str, tuple[int, ...]] = {}
    for member in sorted(texts):
        key = ballot(texts[member])
        votes[key] = (*votes.get(key, ()), member)
    best = max(votes.values(), key=lambda members: (len(members), sum(weights[m] for m in members), -members[0]))
    return best[0], votes


class Committee:
    """Asks its members. Each may serve others meanwhile."""

    def __init__(
        self,
        members: Sequence[Speaker],
        *,
        seconds: float | None = None,
        weights: Sequence[float] | None = None,
        ballot: Callable[[str], str] = plain_ballot,
    ) -> None:
        """`seconds` from the question to the vote; None waits for all. `ballot` says of an answer what is voted on."""
        if len(members) < 2:
            raise refused("members", f"{len(members)} of them", "two models or more")
        if seconds is not None:
            check_number("seconds", seconds, 0.0, LONGEST, open_low=True)
        if weights is not None and len(weights) != len(members):
            raise refused("weights", list(weights), f"{len(members)} numbers, one for each member")
        for weight in weights or ():
            check_number("weights", weight, 0.0, LONGEST)
        self._members = tuple(members)
        self._seconds = seconds
        self._weights = tuple(weights or [1.0] * len(members))
        self._ballot = ballot

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> Verdict:
        """Raises ResourceError where nobody had an answer in time, or the first member's error where all failed."""
        hearings = [_Hearing() for _ in self._members]
        threads = [
            threading.Thread(target=hearing.hear, args=(member, messages, params), daemon=True)
            for member, hearing in zip(self._members, hearings, strict=True)
        ]
        for thread in threads:
            thread.start()
        self._wait(threads, hearings)
        texts = {place: hearing.text for place, hearing in enumerate(hearings) if hearing.whole}
        failed = {place: hearing.error for place, hearing in enumerate(hearings) if hearing.error is not None}
        late = tuple(place for place in range(len(hearings)) if place not in texts and place not in failed)
        if not texts:
            if not late:
                raise failed[0]
            hint = "give them more seconds, or ask for fewer tokens"
            raise ResourceError(f"no member had an answer in {self._seconds:g} s", hint=hint)
        winner, votes = vote(texts, self._weights, self._ballot)
        return Verdict(text=texts[winner], votes=votes, texts=texts, late=late, failed=failed)

    def _wait(self, threads: Sequence[threading.Thread], hearings: Sequence[_Hearing]) -> None:
        """Until all have answered or the time is up; then nobody writes on."""
        due = None if self._seconds is None else time.monotonic() + self._seconds
        try:
            for thread in threads:
                while thread.is_alive() and (due is None or time.monotonic() < due):
                    thread.join(POLL_SECONDS if due is None else min(POLL_SECONDS, max(0.0, due - time.monotonic())))
        finally:
            for hearing in hearings:
                hearing.stop()


@dataclass(slots=True)
class _Hearing:
    """One member's answer, in a thread of its own."""

    text: str = ""
    whole: bool = False
    error: BaseException | None = None
    _stream: Stream | None = None
    _stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)  # around who opens a stream and who stops it

    def hear(self, member: Speaker, messages: Sequence[Message], params: SamplingParams | None) -> None:
        try:
            stream = self._opened(member.stream_chat(messages, params))
            try:
                for delta in stream:
                    if delta.error is not None:
                        raise delta.error
                    self.text += delta.text
                    if self._stopped:
                        return
                self.whole = not self._stopped  # a stream that was closed ends like any other
            finally:
                stream.close()
        except BaseException as error:  # it is told to whoever asked the committee
            if not self._stopped:  # else it ends because it was told to
                self.error = error

    def stop(self) -> None:
        """Write no further, also where no token has come yet."""
        with self._lock:
            self._stopped = True
            if self._stream is not None:
                self._stream.close()

    def _opened(self, stream: Stream) -> Stream:
        """The stream, closed at once if nobody waits for it any more."""
        with self._lock:
            self._stream = stream
            if self._stopped:
                stream.close()
        return stream
