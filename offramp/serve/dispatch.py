"""The engine's side of the server: who waits, who runs, whose time is over. Synchronous, one thread, no locks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from offramp.core import Request, TokenEvent
from offramp.engine.engine import Engine
from offramp.errors import OfframpError
from offramp.serve.fair_queue import FairQueue
from offramp.serve.ticket import Expiry, Submission, end_events


@dataclass(slots=True)
class Turn:
    """What happened since the one before."""

    news: dict[Submission, list[TokenEvent]] = field(default_factory=dict)
    ended: list[Submission] = field(default_factory=list)
    num_left: int = 0  # requests that left the queue

    def tell(self, submission: Submission, event: TokenEvent) -> None:
        self.news.setdefault(submission, []).append(event)
        if event.finish_reason is not None:
            submission.open_choices.remove(event.choice)
            if not submission.open_choices:
                self.ended.append(submission)


class Dispatcher:
    """Hands requests to the engine as places come free, in fair order, and steps it.

    The engine gets no more requests than can run: the others wait here, where clients take turns. `prepare` is called
    before a request is handed over: with False it waits, and all behind it; what it raises (OfframpError) ends it.
    """

    def __init__(
        self, engine: Engine, *, max_num_seqs: int, prepare: Callable[[Request], bool], clock: Callable[[], float]
    ) -> None:
        self._engine = engine
        self._max_num_seqs = max_num_seqs
        self._prepare = prepare
        self._clock = clock
        self._queue: FairQueue[Submission] = FairQueue()
        self._held: dict[str, Submission] = {}
        self._turn = Turn()  # not returned yet

    @property
    def has_work(self) -> bool:
        """`admit` or `step` has something to do or to tell."""
        return bool(self._queue or self._held or self._turn.news)

    @property
    def num_held(self) -> int:
        """Sequences that the engine has."""
        return sum(len(submission.open_choices) for submission in self._held.values())

    def submit(self, submission: Submission) -> None:
        """Queue a request; it must be one that `Engine.check_request` passes."""
        self._queue.put(submission, priority=submission.request.priority, client=submission.client)

    def cancel(self, submission: Submission, expired: Expiry | None = None) -> bool:
        """End a request now; what `admit` or `step` returns next tells. False when it has ended."""
        request_id = submission.request.request_id
        if submission in self._queue:
            self._queue.remove(submission)
            self._turn.num_left += 1
            self._end(submission)
        elif self._held.get(request_id) is not submission or not self._engine.abort(request_id):
            return False
        submission.expired = expired
        return True

    def cancel_all(self) -> int:
        """End all requests; returns how many that were."""
        return sum([self.cancel(submission) for submission in [*self._queue, *self._held.values()]])

    def admit(self) -> Turn:
        """End what is overdue, hand over what there is room for."""
        self._expire(self._clock())
        self._hand_over()
        return self._close_turn()

    def step(self) -> Turn:
        """One step of the engine, if it has work."""
        if self._engine.has_work:
            began = self._clock()
            events = self._engine.step()
            self._note_starts(began, {event.request_id for event in events if event.token_ids})
            for event in events:
                self._turn.tell(self._held[event.request_id], event)
        return self._close_turn()

    def _close_turn(self) -> Turn:
        turn, self._turn = self._turn, Turn()
        for submission in turn.ended:
            self._held.pop(submission.request.request_id, None)
        return turn

    def _expire(self, now: float) -> None:
        for submission in [*self._queue, *self._held.values()]:
            if submission.total_due <= now:
                self.cancel(submission, "total")
            elif submission.started is None and submission.queue_due <= now:
                self.cancel(submission, "queue")

    def _hand_over(self) -> None:
        while self._queue and self._has_room(self._queue.first().request.priority):
            request = self._queue.first().request
            try:
                if not self._prepare(request):
                    return
                self._engine.add_request(request)
            except OfframpError as error:
                self._end(self._leave_queue(), error)
            else:
                self._held[request.request_id] = self._leave_queue()

    def _leave_queue(self) -> Submission:
        self._turn.num_left += 1
        return self._queue.take()

    def _has_room(self, priority: int) -> bool:
        """Less urgent sequences don't count: the engine sets them aside for a more urgent one."""
        held = (each for each in self._held.values() if each.request.priority <= priority)
        return sum(len(submission.open_choices) for submission in held) < self._max_num_seqs

    def _note_starts(self, began: float, answered: set[str]) -> None:
        """Of requests whose first rows ran in the step that began then; `answered` ones may have ended in it."""
        for request_id, submission in self._held.items():
            if submission.started is None and (request_id in answered or self._engine.has_started(request_id)):
                submission.started = began

    def _end(self, submission: Submission, error: OfframpError | None = None) -> None:
        """End a request that the engine does not have."""
        for event in end_events(submission.request.request_id, submission.open_choices, error=error):
            self._turn.tell(submission, event)
