"""The pipelines of a server: two models behind one name, what decides between them, and what became of requests.

pipelines = Pipelines(load_pipelines(specs), models)
pipelines.check()  # once the models of the start are loaded
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from offramp.collaborate.cascade.calibration import CascadeCalibration, read_cascade
from offramp.collaborate.cascade.scores import SCORES
from offramp.collaborate.pipeline.drift import ShareWatch
from offramp.collaborate.pipeline.rule import Rule, rule_of
from offramp.collaborate.pipeline.spec import CASCADE, PipelineSpec, RemoteSpec
from offramp.collaborate.router.pack import RouterPack, bind
from offramp.collaborate.router.pack_file import read_router
from offramp.errors import InvalidRequestError, OfframpError
from offramp.llm.loading import LoadedModel
from offramp.params import refused
from offramp.serve.models import Models
from offramp.serve.remote import Remote

DEFAULT_SCORE = next(iter(SCORES))

log = logging.getLogger("offramp.serve.pipelines")


@dataclass(slots=True, eq=False, kw_only=True)
class Pipeline:
    """One pipeline, its files read. The event loop alone changes it."""

    spec: PipelineSpec
    rule: Rule
    score: str | None = None  # of a cascade
    router: RouterPack | None = None  # of a route
    calibration: CascadeCalibration | None = None  # of a cascade
    remote: Remote | None = None  # the big model, if it is elsewhere
    watch: ShareWatch
    answered: Counter[str] = field(default_factory=Counter)  # requests by who answered: little or big
    failures: int = 0  # calls of the big model that brought no answer, or not all of it

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def big_name(self) -> str:
        """The big model as users know it."""
        return self.remote.name if self.remote is not None else str(self.spec.big)

    def check_fits(self, little: LoadedModel) -> None:
        """Raise InvalidRequestError where files belong to another model than the little one."""
        if self.router is not None:
            bind(self.router, model_hash=little.source_hash, config=little.config)
        if self.calibration is not None:
            self.calibration.check_fits(little.source_hash)

    def failed(self) -> None:
        """Count a call that brought no answer, or not all of it."""
        self.failures += 1

    def decided(self, wants_big: bool) -> None:
        """Note a decision, for drift."""
        self.watch.note(wants_big)
        if self.watch.news():
            log.warning(
                "pipeline %s asks the big model for %.0f %% of requests, %.0f %% when it was calibrated: "
                "calibrate it again, on prompts as they come now",
                self.name,
                100 * (self.watch.achieved or 0.0),
                100 * (self.watch.calibrated or 0.0),
            )

    def card(self) -> dict[str, object]:
        """What /v1/models tells of it, besides what every model's card has."""
        return {
            "policy": self.spec.policy,
            "little": self.spec.little,
            "big": self.big_name,
            "remote": self.remote is not None,
            "threshold": self.rule.threshold,
            "risk": self.rule.risk,
            "calibrated_big_share": self.rule.calibrated_share,
            "achieved_big_share": self.watch.achieved,
        }


def load_pipeline(spec: PipelineSpec) -> Pipeline:
    """Read a pipeline's files. Raises OfframpError naming it."""
    try:
        return _loaded(spec)
    except OfframpError as error:
        raise _named(spec.name, error) from error


def _loaded(spec: PipelineSpec) -> Pipeline:
    remote = Remote(spec.big) if isinstance(spec.big, RemoteSpec) else None
    if spec.policy == CASCADE:
        calibration = None if spec.calibration is None else read_cascade(spec.calibration)
        score = spec.score or (DEFAULT_SCORE if calibration is None else calibration.score)
        if calibration is not None and calibration.score != score:
            raise refused("score", score, f"{calibration.score}, which {spec.calibration} is for")
        rule = rule_of(spec, None if calibration is None else calibration.thresholds)
        watch = ShareWatch(rule.calibrated_share, rule.num_prompts)
        return Pipeline(spec=spec, rule=rule, score=score, calibration=calibration, remote=remote, watch=watch)
    assert spec.router is not None, "checked with the spec"
    router = read_router(spec.router)
    rule = rule_of(spec, router.calibration)
    watch = ShareWatch(rule.calibrated_share, rule.num_prompts)
    return Pipeline(spec=spec, rule=rule, router=router, remote=remote, watch=watch)


class Pipelines:
    """All of them. Names are those of no model."""

    def __init__(self, pipelines: Sequence[Pipeline], models: Models) -> None:
        self._by_name = {each.name: each for each in pipelines}
        self._models = models
        assert len(self._by_name) == len(pipelines)

    def __iter__(self) -> Iterator[Pipeline]:
        return iter(self._by_name.values())

    def find(self, name: object) -> Pipeline | None:
        """The pipeline of that name, if there is one."""
        return self._by_name.get(name) if isinstance(name, str) else None

    def check(self) -> None:
        """See that files fit the models that are loaded, and that endpoints are there; before an event loop runs.

        Raises OfframpError naming the pipeline.
        """
        for each in self:
            try:
                live = self._models.find(each.spec.little).live
                if live is not None:
                    each.check_fits(live.served.loaded)
                if each.remote is not None:
                    asyncio.run(each.remote.check())
            except OfframpError as error:
                raise _named(each.name, error) from error

    def card(self, pipeline: Pipeline) -> dict[str, object]:
        """In the shape of a model's card."""
        little = self._models.card(pipeline.spec.little)
        lengths = [little["max_model_len"]]
        if pipeline.remote is None:
            lengths.append(self._models.card(pipeline.big_name)["max_model_len"])
        known = [length for length in lengths if isinstance(length, int)]
        max_model_len = min(known) if len(known) == len(lengths) else None
        own = {"id": pipeline.name, "root": pipeline.name, "max_model_len": max_model_len, "offramp": None}
        return {**little, **own, "pipeline": pipeline.card()}

    def listing(self) -> dict[str, object]:
        """GET /v1/models, the models first."""
        cards = self._models.listing()["data"]
        assert isinstance(cards, list)
        return {"object": "list", "data": [*cards, *map(self.card, self)]}


def facts_of(pipeline: Pipeline, *, big: bool, score: float | None, reason: str | None) -> Mapping[str, object]:
    """What an answer tells of the pipeline that it came by."""
    return {
        "name": pipeline.name,
        "policy": pipeline.spec.policy,
        "answered_by": "big" if big else "little",
        "model": pipeline.big_name if big else pipeline.spec.little,
        "score": score,
        "threshold": pipeline.rule.threshold,
        "risk": pipeline.rule.risk,
        "reason": reason,
    }


def _named(name: str, error: OfframpError) -> OfframpError:
    """The same kind of error, naming the pipeline."""
    message = f"pipeline {name!r}: {error.message}"
    if isinstance(error, InvalidRequestError):
        return InvalidRequestError(message, hint=error.hint, param=error.param)
    return type(error)(message, hint=error.hint)
