"""Pipelines of policy `big_little`: a served model whose draft model is the little one, under one name more.

Such a name stands for the big model. Requests go to it as they came, in the mode that the pipeline is for: `calibrated`
at its risk, or `unchecked` under the raw settings of the big model's start. What they ask for themselves wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offramp.collaborate.pipeline.spec import BIG_LITTLE, PipelineSpec
from offramp.core import RequestOptions, SamplingParams
from offramp.errors import InvalidRequestError
from offramp.llm.output import Report
from offramp.llm.promises import Kept
from offramp.llm.serving import CALIBRATED, UNCHECKED
from offramp.llm.starting import ModelStart
from offramp.params import shown
from offramp.serve.served import Served

OFFRAMP = "offramp"
"""The field of a request's body."""
PAIR, BIG = "pair", "big"
"""Who answers: both, or the big model alone."""
NOTHING = "the little model wrote none of it"


def mode_of(spec: PipelineSpec) -> str:
    """What its requests get that name no mode."""
    return UNCHECKED if spec.risk is None else CALIBRATED


def check_starts(specs: Sequence[PipelineSpec], starts: Mapping[str, ModelStart]) -> None:
    """Refuse pairs whose big model is not started with what they take, before anything is loaded.

    `starts` are those of the served models by name. Raises InvalidRequestError naming the pipeline.
    """
    for spec in specs:
        if spec.policy == BIG_LITTLE:
            _check_start(spec, starts)


def _check_start(spec: PipelineSpec, starts: Mapping[str, ModelStart]) -> None:
    serving = starts[str(spec.big)].serving
    own = starts.get(spec.little)  # a served model, of which the big one has another copy beside it
    wanted = spec.little if own is None else own.model
    found = serving.draft_model
    if found is None:
        raise _refused(spec, "is started without a draft model", f"start it with draft_model={shown(wanted)}", "little")
    if str(found) not in (spec.little, wanted):
        hint = f"name that as little, or start it with draft_model={shown(wanted)}"
        raise _refused(spec, f"has the draft model {shown(str(found))}, not {shown(spec.little)}", hint, "little")
    if spec.risk is not None and serving.little.calibration is None:
        hint = "start it with little_calibration=FILE, which `offramp calibrate MODEL --draft-model LITTLE` writes"
        raise _refused(spec, "is started without little_calibration, which a risk needs", hint, "risk")
    if spec.risk is None and serving.little.policy is None:
        hint = "give the pipeline a risk, or start its big model with little_rollback, such as 3"
        raise _refused(spec, "is started without little_rollback, and no risk is given", hint, "risk")


def _refused(spec: PipelineSpec, why: str, hint: str, param: str) -> InvalidRequestError:
    return InvalidRequestError(f"pipeline {spec.name!r}: big={shown(spec.big)} {why}", hint=hint, param=param)


def check_kept(spec: PipelineSpec, served: Served) -> None:
    """Refuse a risk that is not certified for the pair, once it is loaded. Raises InvalidRequestError."""
    options = RequestOptions(mode=mode_of(spec), risk=spec.risk)
    served.promises.keep(served.serving.execution(options, served.loaded.tokenizer), SamplingParams())


def with_mode(values: Mapping[str, object], spec: PipelineSpec) -> Mapping[str, object]:
    """A request's body with the pipeline's mode and risk where it names none; refusing bad ones is the route's work."""
    given = values.get(OFFRAMP)
    if given is not None and not isinstance(given, Mapping):
        return values
    own = dict(given or {})
    if own.get("mode") is None:
        own["mode"] = mode_of(spec)
    if own["mode"] == CALIBRATED and own.get("risk") is None and spec.risk is not None:
        own["risk"] = spec.risk
    return {**values, OFFRAMP: own}


def pair_facts(spec: PipelineSpec, kept: Kept) -> Mapping[str, object]:
    """What an answer tells of the pipeline: whether the little model may write, and if not, why."""
    return {
        "name": spec.name,
        "policy": spec.policy,
        "answered_by": BIG if kept.big_little is None else PAIR,
        "model": spec.big,
        "score": None,
        "threshold": None,
        "risk": kept.risk,
        "reason": kept.reason,
    }


def as_written(facts: Mapping[str, object], report: Report | None) -> Mapping[str, object]:
    """The same of a whole answer; of which the little model may have written nothing after all."""
    if report is None or facts["answered_by"] != PAIR or report.num_little_tokens:
        return facts
    return {**facts, "answered_by": BIG, "reason": NOTHING}
