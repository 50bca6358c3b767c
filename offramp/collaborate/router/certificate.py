"""What a router's certified thresholds hold for: states read as they were, and answers made as the recorded ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from offramp.collaborate.covered import why_not_covered
from offramp.collaborate.running import CertificateCheck
from offramp.core import SamplingParams
from offramp.exits.certificate import SamplingSettings, group, only
from offramp.model.metadata import Fields
from offramp.model.pack_header import model_hash

CHECK = CertificateCheck(
    certificate="the router's certificate",
    how="trained",
    again="start the models as the router was trained for, or train it again",
    param="router",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRunning:
    """A model as it runs: with anything else it has other states, and gives other answers."""

    config: str  # what is computed with its tensors: `config_identity`
    weights: str  # how many of its matrices run in which format: "q4 210, q8 1"
    kv: str
    template: str  # what its chat templates are

    def check_same(self, which: str, found: ModelRunning) -> None:
        """Raise InvalidRequestError naming the first field in which the little or big model differs."""
        CHECK.running(which, asdict(found), asdict(self))

    @staticmethod
    def read(content: Fields, name: str) -> ModelRunning:
        """From JSON. Raises CorruptModelError naming the field."""
        found = group(content, name, ModelRunning)
        return ModelRunning(**{each.name: found.text(each.name) for each in fields(ModelRunning)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswers:
    """How the answers were made whose quality was recorded: as whoever trained the router said."""

    sampling: SamplingSettings
    max_tokens: int | None  # None: up to the context's end
    big_model: str | None = None  # hash of the big model's source tensors; None: elsewhere, or nobody said
    big: ModelRunning | None = None  # beside `big_model`

    def why_not(self, params: SamplingParams) -> str | None:
        """Why they say nothing of a request, naming the field; None: they do."""
        return why_not_covered(params, self.sampling, self.max_tokens)

    def check_big(self, found_hash: str, found: ModelRunning) -> None:
        """Raise InvalidRequestError if the big model is another one or runs otherwise, as far as is known."""
        if self.big is not None:
            CHECK.equal("the big model's tensor hash", found_hash, self.big_model)
            self.big.check_same("big", found)

    def fields(self) -> dict[str, object]:
        """As JSON; `read` gives an equal one."""
        return asdict(self)

    @staticmethod
    def read(content: Fields) -> RecordedAnswers:
        """From JSON. Raises CorruptModelError naming the field."""
        only(content, {each.name for each in fields(RecordedAnswers)})
        known = content.has("big_model")
        if content.has("big") != known:
            raise content.error("big", "how the big model ran, beside big_model and with nothing else")
        return RecordedAnswers(
            sampling=SamplingSettings.read(group(content, "sampling", SamplingSettings)),
            max_tokens=content.integer("max_tokens") if content.has("max_tokens") else None,
            big_model=model_hash(content, "big_model") if known else None,
            big=ModelRunning.read(content, "big") if known else None,
        )
