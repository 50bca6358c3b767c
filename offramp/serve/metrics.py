"""What `/metrics` tells: the engine's counters, read when asked for, and histograms of what clients saw.

Names are vLLM's under the prefix `offramp:`, so that dashboards port by a change of prefix. One registry an app:

    registry = make_registry([EngineCollector(lambda: worker.statistics, model_name)])
    text = metrics_text(registry)  # with the content type METRICS_TYPE
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from offramp.core import FinishReason
from offramp.engine.statistics import Statistics
from offramp.serve.snapshot import WorkerStatistics

PREFIX = "offramp:"
METRICS_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Collector(Protocol):
    """Families of metrics, each with the series of one model."""

    def collect(self) -> Iterable[Metric]: ...


def make_registry(collectors: Sequence[Collector]) -> CollectorRegistry:
    """A registry of its own that reads the counters at each scrape, from whatever thread scrapes."""
    registry = CollectorRegistry()
    registry.register(_Together(collectors))
    return registry


def metrics_text(registry: CollectorRegistry) -> bytes:
    """The registry's page in Prometheus' text format."""
    return generate_latest(registry)


class _Together:
    """Several collectors as one, which names each family once: the format allows no more."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for family in (family for collector in self._collectors for family in collector.collect()):
            if family.name in families:
                families[family.name].samples += family.samples
            else:
                families[family.name] = family
        return families.values()


class EngineCollector:
    """Statistics as metrics. Counters never fall, and all of them are there from the start.

    `statistics` returns a copy, which no step changes under the reader; `exit_layers` are the depths from which tokens
    of requests with exits may come.
    """

    def __init__(
        self,
        statistics: Callable[[], WorkerStatistics],
        model_name: str,
        exit_layers: Callable[[], Sequence[int]] = lambda: (),
    ) -> None:
        self._statistics = statistics
        self._model_name = model_name
        self._exit_layers = exit_layers

    def collect(self) -> Iterator[Metric]:
        now = self._statistics()
        yield from self._gauges(now)
        yield from self._token_counters(now)
        yield from self._step_counters(now)
        yield from self._draft_counters(now)
        yield from self._exit_counters(now)
        yield from self._little_counters(now)

    def _gauges(self, now: WorkerStatistics) -> Iterator[Metric]:
        yield self._gauge("num_requests_running", "Sequences in the engine's batch.", now.num_running)
        waiting = now.num_waiting + now.num_queued
        yield self._gauge("num_requests_waiting", "Requests that wait for a place or for pages.", waiting)
        yield self._gauge("kv_cache_usage_perc", "Share of the K/V pages in use; 1 is all.", now.page_usage)

    def _token_counters(self, now: Statistics) -> Iterator[Metric]:
        counter = self._counter
        yield counter("prompt_tokens", "Prompt tokens processed, cached ones included.", now.num_prompt_tokens)
        yield counter("generation_tokens", "Tokens generated.", now.num_generated_tokens)
        yield counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", now.num_prompt_tokens)
        yield counter("prefix_cache_hits", "Prompt tokens found there.", now.num_cached_tokens)
        yield counter("num_preemptions", "Times a sequence gave up its pages.", now.num_preemptions)
        finished = {reason: now.num_finished[reason] for reason in get_args(FinishReason)}
        yield self._labelled("request_success", "Sequences finished, by what ended them.", "finished_reason", finished)

    def _step_counters(self, now: Statistics) -> Iterator[Metric]:
        counter = self._counter
        yield counter("engine_steps", "Steps of the engine.", now.num_steps)
        yield counter("engine_rows", "Rows of all steps; over the steps it is the mean batch.", now.num_rows)
        yield counter("draft_seconds", "Seconds spent on drafting.", now.draft_seconds)
        yield counter("run_seconds", "Seconds spent in the model.", now.run_seconds)
        yield counter("step_seconds", "Seconds of all steps, drafting and the model included.", now.step_seconds)

    def _draft_counters(self, now: Statistics) -> Iterator[Metric]:
        counter, name = self._counter, "spec_decode_num_"
        yield counter(f"{name}drafts", "Drafts that ran.", now.num_drafts)
        yield counter(f"{name}draft_tokens", "Draft tokens that ran.", now.num_draft_tokens)
        yield counter(f"{name}accepted_tokens", "Draft tokens accepted.", now.num_accepted_tokens)
        yield counter(f"{name}emitted_tokens", "Tokens that steps with a draft brought.", now.num_emitted_tokens)
        deepest = max(now.num_draft_tokens_per_pos, default=-1)
        by_position = {str(depth): now.num_accepted_tokens_per_pos[depth] for depth in range(deepest + 1)}
        text = "Draft tokens accepted, by position in the draft."
        yield self._labelled(f"{name}accepted_tokens_per_pos", text, "position", by_position)
        text = "Drafted steps against plain ones for the same tokens, by the cost model; below 1 they cost time."
        yield self._gauge("spec_decode_estimated_speedup", text, now.estimated_speedup)

    def _exit_counters(self, now: Statistics) -> Iterator[Metric]:
        counter, name = self._counter, "early_exit_"
        by_layer = (
            ("tokens", "Tokens of requests with exits, by the layers that ran for them.", now.num_exits_per_layer),
            ("rows_asked", "Rows that a policy was asked about, by exit point.", now.num_asked_per_layer),
            ("head_rows", "Of those, rows that went through the exit's head.", now.num_head_rows_per_layer),
        )
        for noun, text, counts in by_layer:
            values = {str(layer): counts[layer] for layer in self._exit_layers()}
            yield self._labelled(f"{name}{noun}", text, "layer", values)
        yield counter(f"{name}paid_debts", "Tokens whose skipped layers ran later.", now.num_paid_debts)
        yield counter(f"{name}propagated_rows", "Tokens whose skipped K/V was projected.", now.num_propagated_rows)
        text = "Rows that ran on behind their exit since their sequence owed too much."
        yield counter(f"{name}forced_rows", text, now.num_forced_rows)
        text = "Rows that ran on behind their exit because of others (barriers)."
        yield counter(f"{name}involuntary_stays", text, now.num_involuntary_stays)

    def _little_counters(self, now: Statistics) -> Iterator[Metric]:
        name = "big_little_"
        text = "Tokens of requests for which a little model writes, by the model that they come from."
        by_model = {"little": now.num_little_tokens, "big": now.num_big_tokens}
        yield self._labelled(f"{name}tokens", text, "written_by", by_model)
        text = "Tokens of the little model that plain decoding would not have drawn there."
        yield self._counter(f"{name}differing_tokens", text, now.num_differing_tokens)
        yield self._counter(f"{name}fallbacks", "Tokens that it left to the big model.", now.num_fallbacks)
        text = "Tokens of the big model in the place of one that it wrote."
        yield self._counter(f"{name}rollbacks", text, now.num_rollbacks)

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        metric = GaugeMetricFamily(PREFIX + name, text, labels=["model_name"])
        metric.add_metric([self._model_name], value)
        return metric

    def _counter(self, name: str, text: str, value: float) -> Metric:
        metric = CounterMetricFamily(PREFIX + name, text, labels=["model_name"])
        metric.add_metric([self._model_name], value)
        return metric

    def _labelled(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        metric = CounterMetricFamily(PREFIX + name, text, labels=["model_name", label])
        for value, count in values.items():
            metric.add_metric([self._model_name, value], count)
        return metric
