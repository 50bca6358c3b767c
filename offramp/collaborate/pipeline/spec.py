"""What pipelines are, as they are written in a file: checked field by field, before anything is loaded.

{"smart": {"little": "small", "big": "large", "policy": "cascade", "score": "mean", "threshold": 0.4},
 "cheap": {"little": "small", "big": {"url": "http://127.0.0.1:9000/v1", "model": "x", "key_env": "BIG_KEY"},
           "policy": "route", "router": "folder", "big_share": 0.3},
 "swift": {"little": "small", "big": "large", "policy": "big_little", "risk": 0.05}}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from offramp.collaborate.cascade.scores import SCORES
from offramp.collaborate.threshold import check_threshold
from offramp.errors import InvalidRequestError
from offramp.exits.calibration import check_risk
from offramp.params import check_choice, check_int, check_number, refused, shown

CASCADE, ROUTE, BIG_LITTLE = "cascade", "route", "big_little"
POLICIES = (CASCADE, ROUTE, BIG_LITTLE)
MOST_SECONDS = 1e6
MOST_RETRIES = 10
MOST_CALLS = 1_000_000_000
HINT = 'write {"NAME": {"little": "small", "big": "large", "policy": "cascade", "threshold": 0.4}, ...}'
ENDS = ("threshold", "big_share", "risk")
"""Ways to say when the big model answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSpec:
    """A model elsewhere, behind OpenAI's API. Keys come from the environment, and are never written down."""

    url: str  # up to and with /v1
    model: str
    key_env: str | None = None
    timeout: float = 120.0  # seconds for a whole answer, a stream too
    connect_timeout: float = 5.0
    retries: int = 2
    budget_calls: int | None = None  # in `budget_seconds`
    budget_seconds: float = 86400.0

    def __post_init__(self) -> None:
        _check_address(self.url)
        _check_name("model", self.model)
        if self.key_env is not None:
            _check_name("key_env", self.key_env)
        check_number("timeout", self.timeout, 0.0, MOST_SECONDS, open_low=True)
        check_number("connect_timeout", self.connect_timeout, 0.0, MOST_SECONDS, open_low=True)
        check_int("retries", self.retries, 0, MOST_RETRIES)
        check_int("budget_calls", self.budget_calls, 0, MOST_CALLS, optional=True)
        check_number("budget_seconds", self.budget_seconds, 0.0, 1e9, open_low=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """One pipeline. Exactly one of `threshold`, `big_share` and `risk` says when the big model answers.

    Of policy `big_little` both write one answer, and there may be a risk alone.
    """

    name: str
    little: str
    big: str | RemoteSpec
    policy: str
    threshold: float | None = None
    big_share: float | None = None
    risk: float | None = None
    score: str | None = None  # of a cascade
    router: Path | None = None  # a router pack, of a route
    calibration: Path | None = None  # of a cascade

    def __post_init__(self) -> None:
        _check_name("name", self.name)
        _check_name("little", self.little)
        if not isinstance(self.big, RemoteSpec):
            _check_name("big", self.big)
        check_choice("policy", self.policy, POLICIES)
        if self.policy == BIG_LITTLE:
            self._check_pair()
            return
        self._check_ends()
        if self.policy == ROUTE:
            self._has("router", "a router pack, which `offramp train router` makes")
            self._lacks("score", "calibration")
        else:
            self._lacks("router")
            if self.threshold is None:
                self._has("calibration", "a cascade's calibration, which big_share and risk need")
            if self.score is not None:
                check_choice("score", self.score, SCORES)
                if SCORES[self.score].trained:
                    self._has("calibration", f"a cascade's calibration, which has what score {self.score} was taught")

    def _check_pair(self) -> None:
        if isinstance(self.big, RemoteSpec):
            hint = "name a served model: it reads every token that the little one writes"
            raise InvalidRequestError(f"policy {self.policy} with a big model elsewhere", hint=hint, param="big")
        self._lacks("threshold", "big_share", "router", "score")
        self._lacks("calibration", hint="start the big model with it, as its little_calibration")
        if self.risk is not None:
            check_risk(self.risk)

    def _check_ends(self) -> None:
        given = [name for name in ENDS if getattr(self, name) is not None]
        if len(given) != 1:
            hint = f"give exactly one of {', '.join(ENDS)}"
            raise InvalidRequestError(f"{' and '.join(given) or 'nothing'} says when to ask the big model", hint=hint)
        if self.threshold is not None:
            check_threshold(self.threshold)
        if self.big_share is not None:
            check_number("big_share", self.big_share, 0.0, 1.0)
        if self.risk is not None:
            check_risk(self.risk)

    def _has(self, name: str, what: str) -> None:
        if getattr(self, name) is None:
            raise InvalidRequestError(f"policy {self.policy} without {name}", hint=f"{name} names {what}", param=name)

    def _lacks(self, *names: str, hint: str = "leave it out") -> None:
        for name in names:
            if getattr(self, name) is not None:
                message = f"{name}={shown(getattr(self, name))} beside policy {self.policy}"
                raise InvalidRequestError(message, hint=hint, param=name)


def read_pipelines(content: Mapping[str, object], folder: Path) -> list[PipelineSpec]:
    """The pipelines of a file; paths in it are from `folder`. Raises InvalidRequestError naming pipeline and field."""
    if not content:
        raise InvalidRequestError("there are no pipelines", hint=HINT)
    found = []
    for name, values in content.items():
        try:
            found.append(_read_one(name, values, folder))
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{name!r}: {error.message}", hint=error.hint, param=error.param) from None
    return found


def check_names(specs: Sequence[PipelineSpec], models: Mapping[str, str]) -> None:
    """Refuse a name that is taken, and models that are not served; a pipeline is no model of a pipeline.

    `models` has for every name of a served model the first one, which is the same for all that it has.
    """
    pipelines = {spec.name for spec in specs}
    for spec in specs:
        if spec.name in models:
            hint = "give the pipeline a name of its own"
            raise InvalidRequestError(f"{spec.name!r} is both a model and a pipeline", hint=hint, param="name")
        if spec.little == spec.big:
            message = f"{spec.name!r}: little and big are both {spec.little!r}"
            raise InvalidRequestError(message, hint="name two models", param="big")
        for place in ("little", "big"):
            _check_model(spec, place, pipelines, models)
        if not isinstance(spec.big, RemoteSpec) and spec.little in models and models[spec.little] == models[spec.big]:
            message = f"{spec.name!r}: little={spec.little!r} and big={spec.big!r} are names of one model"
            raise InvalidRequestError(message, hint="name two models", param="big")


def _check_model(spec: PipelineSpec, place: str, pipelines: Collection[str], models: Collection[str]) -> None:
    name = getattr(spec, place)
    if isinstance(name, RemoteSpec) or name in models:
        return
    if name in pipelines:
        which = "itself" if name == spec.name else "another one"
        message = f"{spec.name!r}: {place}={name!r} is no model but a pipeline, {which}"
        raise InvalidRequestError(message, hint=f"served models are {', '.join(models)}", param=place)
    if spec.policy == BIG_LITTLE and place == "little":
        return  # it may be served within the big one alone
    message = f"{spec.name!r}: {place}={name!r} is no served model"
    raise InvalidRequestError(message, hint=f"served models are {', '.join(models)}", param=place)


def _read_one(name: str, values: object, folder: Path) -> PipelineSpec:
    if not isinstance(values, Mapping):
        raise InvalidRequestError("the options are no object", hint=HINT)
    options = _known(values, PipelineSpec, without=("name",))
    for place in ("router", "calibration"):
        if place in options:
            _check_name(place, options[place])
            options[place] = _path(place, options[place], folder)
    if isinstance(options.get("big"), Mapping):
        options["big"] = RemoteSpec(**_known(options["big"], RemoteSpec))
    return PipelineSpec(name=name, **options)


def _path(place: str, text: str, folder: Path) -> Path:
    """Where a text leads from a folder."""
    if "\0" in text:
        raise refused(place, text, "a path")
    try:
        return folder / Path(text).expanduser()
    except RuntimeError as error:  # ~somebody who is not here
        raise refused(place, text, "a path in a home that is there") from error


def _known(
    values: Mapping[str, object], kind: type[PipelineSpec] | type[RemoteSpec], without: Sequence[str] = ()
) -> dict[str, Any]:
    """The values by name, if all are fields and none is missing; null is as if it were not there."""
    own = [field for field in fields(kind) if field.name not in without]
    names = [field.name for field in own]
    for name in values:
        if name not in names:
            raise InvalidRequestError(f"there is no option {shown(name)}", hint=f"options are {', '.join(names)}")
    given = {name: value for name, value in values.items() if value is not None}
    needed = [name for name in names if name in ("little", "big", "policy", "url", "model")]
    for name in needed:
        if name not in given:
            raise InvalidRequestError(f"{name} is missing", hint=f"needed are {', '.join(needed)}", param=name)
    return given


def _check_name(what: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise refused(what, value, "a non-empty text")


def _check_address(url: object) -> None:
    """Refuse what is no address of an API, and one with a key in it, which no error shows."""
    wanted = "an address such as http://127.0.0.1:9000/v1"
    if not isinstance(url, str) or not url.isprintable() or " " in url:
        raise refused("url", url, wanted)
    try:
        parts = urlsplit(url)
        known = bool(parts.hostname) and parts.port != 0
    except ValueError as error:  # half an IPv6 address, a port that is none
        raise refused("url", url, wanted) from error
    if parts.username is not None:
        hint = "name the variable that holds the key in key_env"
        raise InvalidRequestError("url holds a user or a password", hint=hint, param="url")
    if not known or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise refused("url", url, wanted)
