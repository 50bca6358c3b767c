"""What `/metrics` tells of each model: its engine's counters, and whether it is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from offramp.serve.hosted import Hosted
from offramp.serve.metrics import PREFIX, Collector, EngineCollector
from offramp.serve.models import Models


def model_collectors(models: Models) -> list[Collector]:
    """Of all models, in memory or not."""
    return [collector for hosted in models for collector in (engine_of(models, hosted), PresenceCollector(hosted))]


def engine_of(models: Models, hosted: Hosted) -> EngineCollector:
    """The counters of all engines that a model has had."""
    return EngineCollector(lambda: models.statistics(hosted), hosted.name, lambda: hosted.exit_layers)


class PresenceCollector:
    """Whether one model is in memory, and how often it came."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted

    def collect(self) -> Iterator[Metric]:
        hosted = self._hosted
        loaded = hosted.live is not None
        yield self._of(GaugeMetricFamily, "model_loaded", "1 while the model is in memory.", int(loaded))
        text = "Bytes of weights and K/V of a model in memory."
        yield self._of(GaugeMetricFamily, "model_memory_bytes", text, hosted.num_bytes if loaded else 0)
        yield self._of(CounterMetricFamily, "model_loads", "Times the model was loaded.", hosted.num_loads)
        text = "Times it could not be."
        yield self._of(CounterMetricFamily, "model_load_failures", text, hosted.num_failures)

    def _of(
        self, make: Callable[..., GaugeMetricFamily | CounterMetricFamily], name: str, text: str, value: float
    ) -> Metric:
        metric = make(PREFIX + name, text, labels=["model_name"])
        metric.add_metric([self._hosted.name], value)
        return metric
