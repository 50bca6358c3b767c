"""How callers ask for tokens, and the refusal of impossible values by name.

The checks serve every option that comes from outside, those of `LLM` included: type first, then range, and a message
that stays short whatever the value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from offramp.errors import InvalidRequestError

MAX_SCALE = 1e6
"""Largest temperature, and largest repetition penalty."""
MAX_CHOICES = 128
MAX_LOGPROBS = 128
MAX_BIAS = 100.0
MAX_PENALTY = 2.0

MAX_DRAFT = 64
"""Most draft tokens of a sequence in one step."""
MAX_REFERENCES = 64
MAX_REFERENCE_TOKENS = 1 << 16
"""Of all references of a request: indexing them takes memory, and time of one step that everyone waits for."""
REPORTS = ("none", "summary", "tokens")
MAX_ANSWER_CHOICES = 1024
STRUCTURED = "structured_outputs"

SHOWN_CHARACTERS = 80
SHOWN_BITS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputsParams:
    """What an answer must be, in exactly one way. Names and meaning follow vLLM.

    `json` is a JSON schema, as a mapping or as text; `json_object=True` stands for any object. `regex` must match the
    whole answer, `choice` lists whole answers, `grammar` is Lark or GBNF. In JSON, `whitespace_pattern` says what may
    stand between the parts, and `disable_any_whitespace` leaves it out. Impossible values raise InvalidRequestError.
    """

    json: str | Mapping[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    json_object: bool = False
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool = False

    def __post_init__(self) -> None:
        if self.choice is not None:
            object.__setattr__(self, "choice", _items(f"{STRUCTURED}.choice", self.choice, "a list of texts"))
        _check_structure(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to turn logits into tokens and when to stop. Names and meaning follow vLLM.

    Impossible values raise InvalidRequestError at construction, naming the field. `temperature=0` is greedy; `top_k` 0
    or -1, `top_p=1` and `min_p=0` are off; `max_tokens=None` means up to the context's end; `seed=None` means a fresh
    one, which the output names. `logprobs=k` returns the chosen token's and the k best raw log-probabilities. `stop`
    may be one string; None for `stop`, `stop_token_ids` or `logit_bias` means none. `structured_outputs` says what
    the output must be; it then ends where that ends, which `ignore_eos` can't change.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int | None = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    structured_outputs: StructuredOutputsParams | None = None

    def __post_init__(self) -> None:
        stop = (
            (self.stop,) if isinstance(self.stop, str) else _items("stop", self.stop, "a string, or a list of strings")
        )
        object.__setattr__(self, "stop", stop)
        object.__setattr__(self, "stop_token_ids", _items("stop_token_ids", self.stop_token_ids, "a list of token ids"))
        object.__setattr__(self, "logit_bias", _table("logit_bias", self.logit_bias))
        _check_sampling(self)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """A request's say in dynamic execution; None means as the engine was started.

    `draft` names drafters ("auto", "off", "ngram", several joined by commas), `max_draft` bounds the draft tokens of a
    step, `references` are texts that the answer may copy from, `verifier` ("exact" or "rejection") decides which drafts
    stand. `report` says how much the answer tells: "none",
    "summary", or "tokens" for each token's origin too. Impossible values raise InvalidRequestError.
    """

    mode: str | None = None
    risk: float | None = None
    exits: str | None = None
    draft: str | None = None
    max_draft: int | None = None
    references: tuple[str, ...] = ()
    verifier: str | None = None
    report: str = "summary"

    def __post_init__(self) -> None:
        references = _items("references", self.references, "a list of texts")
        object.__setattr__(self, "references", references)
        for name in ("mode", "exits", "draft", "verifier"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise refused(name, value, "a name")
        if self.risk is not None:
            check_number("risk", self.risk, 0.0, 1.0, open_low=True, open_high=True)
        check_int("max_draft", self.max_draft, 0, MAX_DRAFT, optional=True)
        check_choice("report", self.report, REPORTS)
        if len(references) > MAX_REFERENCES:
            raise refused("references", f"{len(references)} texts", f"at most {MAX_REFERENCES}")
        for text in references:
            if not isinstance(text, str):
                raise refused("references", text, "a list of texts")


def _check_sampling(params: SamplingParams) -> None:
    """Refuse impossible sampling values. Ranges are those of vLLM; NaN and infinities never pass."""
    check_number("temperature", params.temperature, 0.0, MAX_SCALE)
    check_number("top_p", params.top_p, 0.0, 1.0, open_low=True)
    check_number("min_p", params.min_p, 0.0, 1.0)
    check_number("repetition_penalty", params.repetition_penalty, 0.0, MAX_SCALE, open_low=True)
    check_number("presence_penalty", params.presence_penalty, -MAX_PENALTY, MAX_PENALTY)
    check_number("frequency_penalty", params.frequency_penalty, -MAX_PENALTY, MAX_PENALTY)
    check_int("top_k", params.top_k, -1)
    check_int("max_tokens", params.max_tokens, 1, optional=True)
    check_int("min_tokens", params.min_tokens, 0)
    check_int("n", params.n, 1, MAX_CHOICES)
    check_int("seed", params.seed, 0, 2**64 - 1, optional=True)
    check_int("logprobs", params.logprobs, 0, MAX_LOGPROBS, optional=True)
    check_int("prompt_logprobs", params.prompt_logprobs, 0, MAX_LOGPROBS, optional=True)
    if not isinstance(params.ignore_eos, bool):
        raise refused("ignore_eos", params.ignore_eos, "True or False")
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise refused("min_tokens", params.min_tokens, f"at most max_tokens ({shown(params.max_tokens)})")
    for text in params.stop:
        if not isinstance(text, str) or not text:
            raise refused("stop", text, "non-empty strings")
    for token in params.stop_token_ids:
        check_int("stop_token_ids", token, 0)
    for token, bias in params.logit_bias.items():
        check_int("logit_bias", token, 0)
        check_number("logit_bias", bias, -MAX_BIAS, MAX_BIAS)

    _check_structured(params)


def _check_structured(params: SamplingParams) -> None:
    asked = params.structured_outputs
    if asked is None:
        return
    if not isinstance(asked, StructuredOutputsParams):
        raise refused(STRUCTURED, asked, "StructuredOutputsParams")
    if params.ignore_eos:
        hint = f"leave ignore_eos or {STRUCTURED} out"
        raise InvalidRequestError(f"ignore_eos beside {STRUCTURED}: those say the end", hint=hint, param="ignore_eos")


def _check_structure(asked: StructuredOutputsParams) -> None:
    for name in ("regex", "grammar", "whitespace_pattern"):
        text = getattr(asked, name)
        if text is not None and not (isinstance(text, str) and text):
            raise refused(f"{STRUCTURED}.{name}", text, "a non-empty text")
    for name in ("json_object", "disable_any_whitespace"):
        if not isinstance(getattr(asked, name), bool):
            raise refused(f"{STRUCTURED}.{name}", getattr(asked, name), "True or False")
    if asked.json is not None and not isinstance(asked.json, str | Mapping):
        raise refused(f"{STRUCTURED}.json", asked.json, "a JSON schema, as an object or as text")
    if asked.choice is not None:
        if not 0 < len(asked.choice) <= MAX_ANSWER_CHOICES:
            raise refused(f"{STRUCTURED}.choice", f"{len(asked.choice)} texts", f"1 to {MAX_ANSWER_CHOICES} texts")
        for text in asked.choice:
            if not (isinstance(text, str) and text):
                raise refused(f"{STRUCTURED}.choice", text, "non-empty texts")
    ways = [name for name in ("json", "regex", "choice", "grammar") if getattr(asked, name) is not None]
    ways += ["json_object"] * asked.json_object
    if len(ways) != 1:
        raise refused(STRUCTURED, " and ".join(ways) or "nothing", "exactly one of json, regex, choice, grammar")
    for name in ("whitespace_pattern", "disable_any_whitespace"):
        if getattr(asked, name) and ways[0] not in ("json", "json_object"):
            raise refused(f"{STRUCTURED}.{name}", getattr(asked, name), "its default without json")
    if asked.whitespace_pattern is not None and asked.disable_any_whitespace:
        raise refused(f"{STRUCTURED}.whitespace_pattern", asked.whitespace_pattern, "none where whitespace is disabled")


def check_number(
    name: str, value: object, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> None:
    """Refuse what is not a number within the range; NaN never is."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    inside = number and low <= value <= high  # type: ignore[operator]
    if not inside or (open_low and value == low) or (open_high and value == high):
        wanted = f"{'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"
        raise refused(name, value, f"a number in {wanted}")


def check_int(name: str, value: object, low: int, high: int | None = None, *, optional: bool = False) -> None:
    """Refuse what is not an integer within the range; with `optional`, None passes."""
    if optional and value is None:
        return
    good = isinstance(value, int) and not isinstance(value, bool) and value >= low and (high is None or value <= high)
    if not good:
        raise refused(name, value, f"an integer >= {low}" if high is None else f"an integer in [{low}, {high}]")


def check_choice(name: str, value: object, known: Iterable[str]) -> None:
    """Refuse what is not one of some names."""
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        raise refused(name, value, f"one of {', '.join(names)}")


def refused(name: str, value: object, wanted: str) -> InvalidRequestError:
    """The error that names a parameter, its value and what it takes."""
    return InvalidRequestError(f"{name}={shown(value)} is impossible", hint=f"{name} takes {wanted}", param=name)


def shown(value: object) -> str:
    """The value as messages show it: its `repr`, cut short; a huge integer by its size."""
    if isinstance(value, int) and value.bit_length() > SHOWN_BITS:
        return f"<an integer of {value.bit_length()} bits>"
    try:
        text = repr(value)
    except Exception:  # a foreign repr may do anything, and this is on the way to an error already
        return f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 20]}...{text[-10:]}"


def _items(name: str, values: object, wanted: str) -> tuple[Any, ...]:
    """A caller's list as a tuple, its items unchecked; None is an empty one."""
    if values is None:
        return ()
    if not isinstance(values, Collection) or isinstance(values, (str, bytes, bytearray, memoryview, Mapping)):
        raise refused(name, values, wanted)
    return tuple(values)


def _table(name: str, values: object) -> dict[Any, Any]:
    """A copy of a caller's mapping, so that nobody changes it later; None is an empty one."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise refused(name, values, "a mapping from token ids to numbers")
    return dict(values)
