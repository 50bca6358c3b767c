"""What `/metrics` tells of pipelines: who answered, and whether the share of the big model is the calibrated one."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from offramp.collaborate.pipeline.spec import BIG_LITTLE
from offramp.serve.metrics import PREFIX
from offramp.serve.pipelines import Pipeline

LABEL = "pipeline"
ANSWERED_BY = ("little", "big")
PAIR_ANSWERED_BY = ("pair", "big")
"""Of two that write one answer: both, or the big one alone."""


class PipelineCollector:
    """Of one pipeline."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def collect(self) -> Iterator[Metric]:
        pipeline = self._pipeline
        requests = CounterMetricFamily(
            f"{PREFIX}pipeline_requests", "Requests answered, by the model that did.", labels=[LABEL, "answered_by"]
        )
        pair = pipeline.spec.policy == BIG_LITTLE
        for who in PAIR_ANSWERED_BY if pair else ANSWERED_BY:
            requests.add_metric([pipeline.name, who], pipeline.answered[who])
        yield requests
        text = "Requests that an endpoint, or a model that can't be loaded, left without an answer or its end."
        yield self._counter("pipeline_failures", text, pipeline.failures)
        watch = pipeline.watch
        text = "Share of the latest 500 requests for which the big model was wanted by the score."
        yield self._gauge("pipeline_big_share", text, watch.achieved)
        yield self._gauge("pipeline_calibrated_big_share", "The same on the calibration's prompts.", watch.calibrated)
        text = "1 while the two shares differ by more than chance explains."
        yield self._gauge("pipeline_drifted", text, None if pair else float(watch.drifted))
        left = None if pipeline.remote is None else pipeline.remote.budget.left
        yield self._gauge("pipeline_budget_calls_left", "Calls that the budget still holds.", left)

    def _counter(self, name: str, text: str, value: int) -> Metric:
        metric = CounterMetricFamily(PREFIX + name, text, labels=[LABEL])
        metric.add_metric([self._pipeline.name], value)
        return metric

    def _gauge(self, name: str, text: str, value: float | None) -> Metric:
        """Without a series where there is no value."""
        metric = GaugeMetricFamily(PREFIX + name, text, labels=[LABEL])
        if value is not None:
            metric.add_metric([self._pipeline.name], value)
        return metric
