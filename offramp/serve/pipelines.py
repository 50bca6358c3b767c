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

from offramp.collaborate.cascade.calibration import BIG, LITTLE, CascadeCalibration, read_cascade
from offramp.collaborate.cascade.scorer import Scorer
from offramp.collaborate.cascade.scores import SCORES
from offramp.collaborate.pipeline.drift import ShareWatch
from offramp.collaborate.pipeline.rule import Rule, rule_of
from offramp.collaborate.pipeline.spec import BIG_LITTLE, CASCADE, PipelineSpec, RemoteSpec
from offramp.collaborate.router.embed import most_tokens
from offramp.collaborate.router.pack import RouterPack, bind
from offramp.collaborate.router.pack_file import read_router
from offramp.core import SamplingParams
from offramp.errors import InvalidRequestError, OfframpError
from offramp.llm.loading import LoadedModel
from offramp.llm.running_of import model_running, running_of
from offramp.params import refused
from offramp.serve.models import Models
from offramp.serve.pair import check_kept
from offramp.serve.remote import Remote

DEFAULT_SCORE = next(iter(SCORES))

log = logging.getLogger("offramp.serve.pipelines")


@dataclass(slots=True, eq=False, kw_only=True)
class Pipeline:
    """One pipeline, its files read. The event loop alone changes it."""

    spec: PipelineSpec
    rule: Rule | None  # None: two models that write one answer
    score: str | None = None  # of a cascade
    router: RouterPack | None = None  # of a route
    calibration: CascadeCalibration | None = None  # of a cascade
    remote: Remote | None = None  # the big model, if it is elsewhere
    watch: ShareWatch
    answered: Counter[str] = field(default_factory=Counter)  # requests by who answered: little, big or pair
    failures: int = 0  # calls of the big model that brought no answer, or not all of it

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def threshold(self) -> float | None:
        return None if self.rule is None else self.rule.threshold

    @property
    def risk(self) -> float | None:
        """That is certified; of a pair, the one that it asks for."""
        return self.spec.risk if self.rule is None else self.rule.risk

    @property
    def scorer(self) -> Scorer | None:
        """Of a trained score."""
        return None if self.calibration is None else self.calibration.scorer

    @property
    def big_name(self) -> str:
        """The big model as users know it."""
        return self.remote.name if self.remote is not None else str(self.spec.big)

    def check_fits(self, little: LoadedModel) -> None:
        """Raise InvalidRequestError where files belong to another model than the little one."""
        if self.router is not None:
            bind(self.router, model_hash=little.source_hash, config=little.config)
            if self.risk is not None:
                self.router.config.check_runs(model_running(little), most_tokens(little.config))
        if self.calibration is not None:
            self.calibration.check_fits(little.source_hash)
            if self.risk is not None:
                self.calibration.check_runs(LITTLE, running_of(little))

    def check_fits_big(self, big: LoadedModel) -> None:
        """The same where the big model is another one than the calibration's, or than a router's certificate is for."""
        if self.router is not None and self.risk is not None:
            self.router.config.check_big(big.source_hash, model_running(big))
        if self.calibration is not None:
            self.calibration.check_fits_big(big.source_hash)
            if self.risk is not None:
                self.calibration.check_runs(BIG, running_of(big))

    def why_not(self, params: SamplingParams, *, chat: bool) -> str | None:
        """Why its certificate does not cover a request, naming the field; None: it does.

        `chat`: the prompt came through the chat template.
        """
        if self.router is not None:
            return self.router.config.why_not(params, chat=chat)
        assert self.calibration is not None, "a certificate is a router's or a cascade's"
        return self.calibration.why_not(params)

    def calls_big(self, score: float) -> bool:
        """Whether a score is one for the big model."""
        assert self.rule is not None, "nobody decides in a pair"
        return self.rule.calls_big(score)

    def count(self, facts: Mapping[str, object]) -> None:
        """Count an answer by who gave it."""
        self.answered[str(facts["answered_by"])] += 1

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
            "threshold": self.threshold,
            "risk": self.risk,
            "calibrated_big_share": self.watch.calibrated,
            "achieved_big_share": self.watch.achieved,
        }


def load_pipeline(spec: PipelineSpec) -> Pipeline:
    """Read a pipeline's files. Raises OfframpError naming it."""
    try:
        return _loaded(spec)
    except OfframpError as error:
        raise _named(spec.name, error) from error


def _loaded(spec: PipelineSpec) -> Pipeline:
    if spec.policy == BIG_LITTLE:
        return Pipeline(spec=spec, rule=None, watch=ShareWatch(None))
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
                self._check(each)
            except OfframpError as error:
                raise _named(each.name, error) from error

    def _check(self, pipeline: Pipeline) -> None:
        big = None if pipeline.remote is not None else self._models.find(pipeline.big_name).live
        if pipeline.spec.policy == BIG_LITTLE:
            if big is not None:
                check_kept(pipeline.spec, big.served)
            return
        little = self._models.find(pipeline.spec.little).live
        if little is not None:
            pipeline.check_fits(little.served.loaded)
        if big is not None:
            pipeline.check_fits_big(big.served.loaded)
        if pipeline.remote is not None:
            asyncio.run(pipeline.remote.check())

    def card(self, pipeline: Pipeline) -> dict[str, object]:
        """In the shape of a model's card."""
        pair = pipeline.spec.policy == BIG_LITTLE  # whose little model need not be served
        first = self._models.card(pipeline.big_name if pair else pipeline.spec.little)
        lengths = [first["max_model_len"]]
        if not pair and pipeline.remote is None:
            lengths.append(self._models.card(pipeline.big_name)["max_model_len"])
        known = [length for length in lengths if isinstance(length, int)]
        max_model_len = min(known) if len(known) == len(lengths) else None
        own = {"id": pipeline.name, "root": pipeline.name, "max_model_len": max_model_len, "offramp": None}
        return {**first, **own, "pipeline": pipeline.card()}

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
        "threshold": pipeline.threshold,
        "risk": pipeline.risk,
        "reason": reason,
    }


def _named(name: str, error: OfframpError) -> OfframpError:
    """The same kind of error, naming the pipeline."""
    message = f"pipeline {name!r}: {error.message}"
    if isinstance(error, InvalidRequestError):
        return InvalidRequestError(message, hint=error.hint, param=error.param)
    return type(error)(message, hint=error.hint)
