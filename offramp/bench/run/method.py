"""What is compared: ways to run one model, each a name and the options of `offramp serve`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from offramp.bench.results.lines import PLAIN
from offramp.core import REJECTION
from offramp.draft import AUTO, DRAFT_MODEL, EAGLE, EARLY_EXIT, OFF, draft_name
from offramp.errors import InvalidRequestError
from offramp.llm.model_flags import ModelFlags
from offramp.llm.serving import CALIBRATED, EARLY, FULL, LOSSLESS, UNCHECKED
from offramp.params import shown

BUILT_IN: Mapping[str, Mapping[str, object]] = {
    PLAIN: {"draft": OFF},
    AUTO: {"draft": AUTO},
    "ngram": {"draft": "ngram"},
    "suffix": {"draft": "suffix"},
    EAGLE: {"draft": EAGLE},
    EARLY_EXIT: {"draft": EARLY_EXIT},
    DRAFT_MODEL: {"draft": DRAFT_MODEL},
    CALIBRATED: {"mode": CALIBRATED},
    UNCHECKED: {"mode": UNCHECKED},
    FULL: {"mode": FULL},
}
"""Methods known by their name alone."""

COMMON = (
    *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "weights", "kv", "kv_memory", "threads"),
    "tool_call_parser",
)
"""Options that every method takes from the run."""
DRAFTING = ("max_draft", "draft_length", "draft_memory", "verifier")
RAW = tuple(f"exit_{name}" for name in ("threshold", "measure", "predictor", "decay", "fill"))
LITTLE = ("little_rollback", "little_fallback", "max_little", "little_calibration")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,39}")
"""A name's form: short, printable, and on one line of a table."""
WRITTEN = "such as ngram, or mine:draft=ngram,max_draft=4"


@dataclass(frozen=True, slots=True)
class Method:
    """One way to run the model."""

    name: str
    flags: ModelFlags

    @property
    def options(self) -> dict[str, object]:
        """Those that are not as `offramp serve` has them by itself."""
        own = {each.name: getattr(self.flags, each.name) for each in fields(ModelFlags)}
        return {name: value for name, value in own.items() if value != getattr(ModelFlags(), name)}


def methods_of(texts: Sequence[str], base: ModelFlags) -> list[Method]:
    """Plain decoding, then those that are named: `NAME`, or `NAME:option=value,...`.

    All take from `base` what every model has, and of packs and settings what they use. Raises InvalidRequestError for
    what can't be: a name that is unknown or comes twice, an option, settings that contradict each other.
    """
    asked = [_named(text) for text in texts]
    methods = [_made(PLAIN, BUILT_IN[PLAIN], base)]
    for name, own in asked:
        if name == PLAIN and not own:
            continue
        if name == PLAIN:
            hint = f"give it a name of its own, such as other:{','.join(f'{key}={own[key]}' for key in own)}"
            raise InvalidRequestError("method plain takes no options: all others are compared with it", hint=hint)
        if name in (method.name for method in methods):
            raise InvalidRequestError(f"two methods are called {shown(name)}", hint="names are for one each")
        if name not in BUILT_IN and not own:
            hint = f"known methods: {', '.join(BUILT_IN)}; or give options, {WRITTEN}"
            raise InvalidRequestError(f"there is no method {shown(name)}", hint=hint)
        methods.append(_made(name, {**BUILT_IN.get(name, {}), **own}, base))
    return methods


def exactness(flags: ModelFlags, plain: ModelFlags | None = None) -> str:
    """What a method promises of its tokens; `plain` tells which weights they are promised for."""
    if flags.mode == CALIBRATED:
        promise = CALIBRATED if flags.risk is None else f"{CALIBRATED}, risk {flags.risk:g}"
    elif flags.mode == LOSSLESS and flags.verifier == REJECTION and flags.draft != OFF:
        promise = f"{LOSSLESS} in distribution"
    else:
        promise = flags.mode
    if plain is None or (flags.weights, flags.kv) == (plain.weights, plain.kv):
        return promise
    return f"{promise}, of weights {flags.weights} and K/V {flags.kv}"


def _named(text: str) -> tuple[str, dict[str, object]]:
    """A method's name and its own options."""
    name, _, rest = text.partition(":")
    if NAME.fullmatch(name) is None:
        raise InvalidRequestError(f"--method {shown(text)}: no name for a method", hint=WRITTEN)
    own: dict[str, object] = {}
    for part in _parts(rest):
        option, equals, value = part.partition("=")
        option = option.strip().removeprefix("--").replace("-", "_")
        if not equals or not option or option in own:
            raise InvalidRequestError(f"--method {shown(text)}: {shown(part)} is no option", hint=WRITTEN)
        own[option] = _value(option, value.strip())
    return name, own


def _parts(text: str) -> Iterable[str]:
    """Between commas; one that has no `=` belongs to the value before it, as in draft=ngram,suffix."""
    parts: list[str] = []
    for part in text.split(",") if text else ():
        if parts and "=" not in part:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def _value(option: str, text: str) -> object:
    """The text as the option's type; what it can't be is left as it is, for `ModelFlags.replaced` to refuse."""
    kinds = {each.name: str(each.type).split(" | ") for each in fields(ModelFlags)}.get(option, ["str"])
    if "str" in kinds:
        return text
    for kind, made in (("int", int), ("float", float)):
        if kind in kinds:
            try:
                return made(text)
            except ValueError:
                continue
    return text


def _made(name: str, own: Mapping[str, object], base: ModelFlags) -> Method:
    """A method of these options, and of the run's those that it uses. Raises InvalidRequestError."""
    try:
        if own.get("load", "start") != "start":
            raise InvalidRequestError("load is for servers", hint="leave it out")
        flags = replace(ModelFlags(), **{each: getattr(base, each) for each in COMMON}).replaced(own)
        used = [each for each in _used(flags) if each not in own and getattr(base, each) is not None]
        flags = replace(flags, **{each: getattr(base, each) for each in used})
        flags.start("model")  # checked, not started
    except InvalidRequestError as error:
        raise InvalidRequestError(f"method {name}: {error.message}", hint=error.hint, param=error.param) from error
    return Method(name, flags)


def _used(flags: ModelFlags) -> tuple[str, ...]:
    """Settings of a run that a method of this mode and these drafters looks at."""
    if flags.mode in EARLY:
        if any(getattr(flags, each) is not None for each in (*LITTLE, "draft_model")):
            return ("draft_model", *(("risk", "little_calibration") if flags.mode == CALIBRATED else LITTLE[:3]))
        return ("exits", "exit_batching", *(("risk",) if flags.mode == CALIBRATED else RAW))
    names = set() if flags.draft is None else set(draft_name(flags.draft).split(","))
    if flags.mode != LOSSLESS or names == {OFF}:
        return ()
    packs = {EARLY_EXIT: "exits", DRAFT_MODEL: "draft_model", EAGLE: "drafter"}
    every = not names or AUTO in names
    return (*DRAFTING, *(pack for drafter, pack in packs.items() if every or drafter in names))
