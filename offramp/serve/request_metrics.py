"""What a client sees of its request, timed: one trace a request, which ends in histograms and in the log.

metrics = RequestMetrics(registry, {"small": "lossless"})      # once an app: the models and their modes
trace = metrics.arrived(request_id, "/v1/completions")
trace.asks("small")                                 # once that is known; a server's only model is from the start
trace.tokens(len(delta.token_ids), delta.index, timed.seconds) # for every delta, with the end of its step
trace.failed(failure)                               # before that, where the client is told of an error
trace.finished(200, report, started=ticket.started) # at the end; also in a `finally`: only the first call counts
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram

from offramp.llm.output import Report
from offramp.serve.errors import Failure, reason_of
from offramp.serve.metrics import PREFIX
from offramp.serve.request_log import FinishedRequest, log_request

CLIENT_CLOSED = 499
"""The status that logs and metrics give a request whose client went away."""

FIRST_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640)
GAP_BUCKETS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 10)
REQUEST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 240, 480, 960, 1920)
QUEUE_BUCKETS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640)


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """One model's histograms."""

    name: str
    mode: str  # that its requests run in if they ask for none: the log tells of other ones
    first_token: Histogram
    gap: Histogram
    per_token: Histogram
    whole: Histogram
    queue: Histogram


class RequestMetrics:
    """Histograms of requests, in seconds, and counts by route and status, for each model; `modes` are their defaults.

    Of several models, what names none of them counts under the empty name.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        modes: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock = clock

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(PREFIX + name, text, ["model_name"], buckets=buckets, registry=registry)

        first_token = histogram("time_to_first_token_seconds", "From arrival to the first token.", FIRST_TOKEN_BUCKETS)
        gap = histogram("inter_token_latency_seconds", "From one step's tokens of a choice to the next's.", GAP_BUCKETS)
        text = "Mean of an answered choice, after its first chunk."
        per_token = histogram("time_per_output_token_seconds", text, GAP_BUCKETS)
        text = "From arrival to the end, of answered requests."
        whole = histogram("e2e_request_latency_seconds", text, REQUEST_BUCKETS)
        queue = histogram("request_queue_time_seconds", "From arrival until the engine began.", QUEUE_BUCKETS)
        self._models = {
            name: ModelTimes(name, mode, *(each.labels(name) for each in (first_token, gap, per_token, whole, queue)))
            for name, mode in modes.items()
        }
        self._requests = Counter(
            f"{PREFIX}http_requests",
            "Requests by route and status; 499: the client went away.",
            ["model_name", "route", "status"],
            registry=registry,
        )

    @property
    def several(self) -> bool:
        """There is more than one model."""
        return len(self._models) > 1

    def model(self, name: str) -> ModelTimes:
        """The histograms of a model."""
        return self._models[name]

    def arrived(self, request_id: str, route: str) -> RequestTrace:
        """A request is here. `route` is one of the server's own, never the client's text."""
        only = None if self.several else next(iter(self._models.values()))
        return RequestTrace(self, request_id, route, only)

    def count(self, model: ModelTimes | None, route: str, status: int) -> None:
        """One request of this route ended so."""
        self._requests.labels("" if model is None else model.name, route, str(status)).inc()


@dataclass(slots=True)
class _Chunks:
    """Those of one choice so far."""

    first: float
    last: float
    num_later_tokens: int = 0  # after the first chunk


class RequestTrace:
    """One request from its arrival to its end. Not for several threads at once."""

    def __init__(self, metrics: RequestMetrics, request_id: str, route: str, model: ModelTimes | None) -> None:
        self._metrics = metrics
        self._model = model  # None: not known yet
        self._id = request_id
        self._route = route
        self._arrived = metrics.clock()
        self._first_token_seconds: float | None = None
        self._choices: dict[int, _Chunks] = {}
        self._ended = False
        self._reason: str | None = None
        self._when_answered: Callable[[Report | None], object] = lambda report: None

    def when_answered(self, call: Callable[[Report | None], object]) -> None:
        """Call once the answer is whole, if that comes to be, with its report where it is an engine's."""
        self._when_answered = call

    def asks(self, name: str) -> None:
        """It is for the model of this name (the first of the names that it has)."""
        self._model = self._metrics.model(name)

    def beside(self) -> RequestTrace:
        """One for an answer within the same request that may not be its last: its tokens count, its end does not."""
        return RequestTrace(self._metrics, self._id, self._route, self._model)

    def failed(self, failure: Failure) -> None:
        """Its client is told of this error; the log keeps the reason."""
        self._reason = reason_of(failure)

    def tokens(self, count: int, choice: int, now: float) -> None:
        """So many tokens of a choice came at this time of the clock, whenever the client is told; 0 changes nothing."""
        if count == 0:
            return
        assert self._model is not None, "tokens of no model"
        if self._first_token_seconds is None:
            self._first_token_seconds = now - self._arrived
            self._model.first_token.observe(self._first_token_seconds)
        chunks = self._choices.get(choice)
        if chunks is None:
            self._choices[choice] = _Chunks(now, now)
        else:
            self._model.gap.observe(now - chunks.last)
            chunks.last = now
            chunks.num_later_tokens += count

    def finished(self, status: int, report: Report | None = None, *, started: float | None = None) -> None:
        """It ended: answered, refused, failed or abandoned. Later calls change nothing.

        `started` is when the engine began with it, by the same clock; None: it never did.
        """
        if self._ended:
            return
        self._ended = True
        model = self._model
        if started is not None and model is not None:
            model.queue.observe(max(0.0, started - self._arrived))
        seconds = self._metrics.clock() - self._arrived
        reasons = report.finish_reasons if report else ()
        if model is not None and status == 200 and reasons and not {"abort", "error"} & set(reasons):
            self._observe_answer(model, seconds)
        if status == 200:
            self._when_answered(report)
        self._metrics.count(model, self._route, status)
        first = self._first_token_seconds
        other_mode = report is not None and model is not None and report.mode != model.mode
        log_request(
            FinishedRequest(
                id=self._id,
                route=self._route,
                status=status,
                prompt_tokens=report.prompt_tokens if report else None,
                output_tokens=report.output_tokens if report else None,
                first_token_seconds=None if first is None else round(first, 6),
                seconds=round(seconds, 6),
                finish_reasons=reasons,
                drafted=report.num_draft_tokens if report else None,
                accepted=report.num_accepted_tokens if report else None,
                reason=self._reason,
                mode=report.mode if report and other_mode else None,
                mode_reason=report.mode_reason if report and other_mode else None,
                model=model.name if model is not None and self._metrics.several else None,
            )
        )

    def _observe_answer(self, model: ModelTimes, seconds: float) -> None:
        model.whole.observe(seconds)
        for chunks in self._choices.values():
            if chunks.num_later_tokens:
                model.per_token.observe((chunks.last - chunks.first) / chunks.num_later_tokens)
