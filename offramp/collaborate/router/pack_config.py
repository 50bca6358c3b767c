"""What a router pack says of itself: `config.json`, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from offramp.collaborate.router import ROUTERS
from offramp.collaborate.router.certificate import CHECK, ModelRunning, RecordedAnswers
from offramp.collaborate.router.embed import num_features
from offramp.collaborate.router.kind import Shape
from offramp.collaborate.threshold import CertifiedThreshold
from offramp.collaborate.threshold_fields import certified_fields, read_certified
from offramp.core import SamplingParams
from offramp.model.metadata import Fields
from offramp.model.pack_header import check_header, choice, model_hash

FORMAT, VERSION = "offramp-router", 2
SHA256 = "sha256"
"""The field with the hash of everything else in the pack, which its file writes and checks."""
MOST_MODELS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """The model whose states the router reads, the models that it chooses between, and what its thresholds promise."""

    model: str  # hash of the embedding model's source tensors
    model_name: str
    num_layers: int
    hidden_size: int
    depth: int  # layers before the states
    running: ModelRunning  # the embedding model as it ran
    prompt_tokens: int  # that count of a longer prompt
    chat: bool  # prompts came through the chat template
    kind: str
    models: tuple[str, ...]  # of the outcomes
    little: str
    big: str
    num_prompts: int  # in the calibration
    certified: tuple[CertifiedThreshold, ...] = ()
    answers: RecordedAnswers | None = None  # that certificates are for
    provenance: Mapping[str, object] = field(default_factory=dict)  # data, seed, settings, figures

    def __post_init__(self) -> None:
        assert self.answers is not None or not self.certified, "a certificate is for answers of some kind"

    def check_runs(self, found: ModelRunning, prompt_tokens: int) -> None:
        """Raise InvalidRequestError naming in what the embedding model runs otherwise than certificates say."""
        self.running.check_same("little", found)
        CHECK.equal("the number of tokens that count of a prompt", prompt_tokens, self.prompt_tokens)

    def check_big(self, found_hash: str, found: ModelRunning) -> None:
        """The same for the big model, as far as is known."""
        if self.answers is not None:
            self.answers.check_big(found_hash, found)

    def why_not(self, params: SamplingParams, *, chat: bool) -> str | None:
        """Why certificates do not cover a request, naming the field; `chat`: it came through the chat template."""
        if chat != self.chat:
            return f"a prompt {'through' if chat else 'without'} the chat template was not part of the calibration"
        return None if self.answers is None else self.answers.why_not(params)

    @property
    def shape(self) -> Shape:
        """What the tensors must fit."""
        features = num_features(self.hidden_size)
        return Shape(features=features, models=self.models, little=self.little, big=self.big)

    def fields(self) -> dict[str, object]:
        """As JSON; `read` gives an equal config."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        own = {
            "models": list(self.models),
            "running": asdict(self.running),
            "certified": certified_fields(self.certified),
            "answers": None if self.answers is None else self.answers.fields(),
            "provenance": dict(self.provenance),
        }
        return {"format": FORMAT, "version": VERSION, **values, **own}

    @staticmethod
    def read(content: Fields) -> RouterConfig:
        """From JSON. Raises CorruptModelError naming the field."""
        names = (*RouterConfig.__dataclass_fields__, SHA256)
        check_header(content, FORMAT, VERSION, names, again=": train the router again, into another folder")
        num_layers = content.integer("num_layers")
        models = _models(content)
        known = {name: name for name in models}
        little, big = choice(content, "little", known), choice(content, "big", known)
        if little == big:
            raise content.error("big", f"another model than the little one, {little!r}")
        provenance = content.group("provenance")
        certified, answers = read_certified(content), content.group("answers")
        if certified and answers is None:
            raise content.error("answers", "how the answers were made that thresholds are certified for")
        return RouterConfig(
            model=model_hash(content),
            model_name=content.text("model_name"),
            num_layers=num_layers,
            hidden_size=content.integer("hidden_size"),
            depth=content.integer("depth", high=num_layers),
            running=ModelRunning.read(content, "running"),
            prompt_tokens=content.integer("prompt_tokens"),
            chat=content.flag("chat", False),
            kind=choice(content, "kind", {name: name for name in ROUTERS}),
            models=models,
            little=little,
            big=big,
            num_prompts=content.integer("num_prompts"),
            certified=certified,
            answers=None if answers is None else RecordedAnswers.read(answers),
            provenance=provenance.values if provenance else {},
        )


def _models(content: Fields) -> tuple[str, ...]:
    names = content.values.get("models")
    if (
        not isinstance(names, list)
        or not 2 <= len(names) <= MOST_MODELS
        or not all(isinstance(name, str) and name for name in names)
        or len(set(names)) != len(names)
    ):
        raise content.error("models", f"a list of 2 to {MOST_MODELS} names, none twice")
    return tuple(names)
