"""What a client sees of its request, timed: one trace a request, which ends in histograms and in the log.

metrics = RequestMetrics(registry, model_name)      # once an app, after make_registry
trace = metrics.arrived(request_id, "/v1/completions")
trace.tokens(len(delta.token_ids), delta.index, timed.seconds) # for every delta, with the end of its step
trace.failed(failure)                               # before that, where the client is told of an error
trace.finished(200, report, started=ticket.started) # at the end; also in a `finally`: only the first call counts
"""

from __future__ import annotations

import time
from collections.abc import Callable
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


class RequestMetrics:
    """Histograms of requests, in seconds, and counts by route and status."""

    def __init__(
        self,
        registry: CollectorRegistry,
        model_name: str,
        *,
        default_mode: str = "lossless",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock = clock
        self.default_mode = default_mode  # the log tells of other ones
        self._model_name = model_name
        self.first_token = self._histogram(
            registry, "time_to_first_token_seconds", "From arrival to the first token.", FIRST_TOKEN_BUCKETS
        )
        self.gap = self._histogram(
            registry, "inter_token_latency_seconds", "From one step's tokens of a choice to the next's.", GAP_BUCKETS
        )
        self.per_token = self._histogram(
            registry, "time_per_output_token_seconds", "Mean of an answered choice, after its first chunk.", GAP_BUCKETS
        )
        self.whole = self._histogram(
            registry, "e2e_request_latency_seconds", "From arrival to the end, of answered requests.", REQUEST_BUCKETS
        )
        self.queue = self._histogram(
            registry, "request_queue_time_seconds", "From arrival until the engine began.", QUEUE_BUCKETS
        )
        self._requests = Counter(
            f"{PREFIX}http_requests",
            "Requests by route and status; 499: the client went away.",
            ["model_name", "route", "status"],
            registry=registry,
        )

    def arrived(self, request_id: str, route: str) -> RequestTrace:
        """A request is here. `route` is one of the server's own, never the client's text."""
        return RequestTrace(self, request_id, route)

    def count(self, route: str, status: int) -> None:
        """One request of this route ended so."""
        self._requests.labels(self._model_name, route, str(status)).inc()

    def _histogram(self, registry: CollectorRegistry, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(PREFIX + name, text, ["model_name"], buckets=buckets, registry=registry)
        return histogram.labels(self._model_name)


@dataclass(slots=True)
class _Chunks:
    """Those of one choice so far."""

    first: float
    last: float
    num_later_tokens: int = 0  # after the first chunk


class RequestTrace:
    """One request from its arrival to its end. Not for several threads at once."""

    def __init__(self, metrics: RequestMetrics, request_id: str, route: str) -> None:
        self._metrics = metrics
        self._id = request_id
        self._route = route
        self._arrived = metrics.clock()
        self._first_token_seconds: float | None = None
        self._choices: dict[int, _Chunks] = {}
        self._ended = False
        self._reason: str | None = None

    def failed(self, failure: Failure) -> None:
        """Its client is told of this error; the log keeps the reason."""
        self._reason = reason_of(failure)

    def tokens(self, count: int, choice: int, now: float) -> None:
        """So many tokens of a choice came at this time of the clock, whenever the client is told; 0 changes nothing."""
        if count == 0:
            return
        if self._first_token_seconds is None:
            self._first_token_seconds = now - self._arrived
            self._metrics.first_token.observe(self._first_token_seconds)
        chunks = self._choices.get(choice)
        if chunks is None:
            self._choices[choice] = _Chunks(now, now)
        else:
            self._metrics.gap.observe(now - chunks.last)
            chunks.last = now
            chunks.num_later_tokens += count

    def finished(self, status: int, report: Report | None = None, *, started: float | None = None) -> None:
        """It ended: answered, refused, failed or abandoned. Later calls change nothing.

        `started` is when the engine began with it, by the same clock; None: it never did.
        """
        if self._ended:
            return
        self._ended = True
        if started is not None:
            self._metrics.queue.observe(max(0.0, started - self._arrived))
        seconds = self._metrics.clock() - self._arrived
        reasons = report.finish_reasons if report else ()
        if status == 200 and reasons and not {"abort", "error"} & set(reasons):
            self._observe_answer(seconds)
        self._metrics.count(self._route, status)
        first = self._first_token_seconds
        other_mode = report is not None and report.mode != self._metrics.default_mode
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
            )
        )

    def _observe_answer(self, seconds: float) -> None:
        self._metrics.whole.observe(seconds)
        for chunks in self._choices.values():
            if chunks.num_later_tokens:
                self._metrics.per_token.observe((chunks.last - chunks.first) / chunks.num_later_tokens)
