"""The model as clients know it: its names, its defaults, and what identifies it."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version

from offramp.core import SamplingParams
from offramp.grammar import Grammars
from offramp.llm.defaults import recommended_params
from offramp.llm.loading import LoadedModel
from offramp.llm.making import make_grammars
from offramp.llm.promises import Promises
from offramp.llm.serving import Serving
from offramp.params import shown
from offramp.serve.errors import HttpError
from offramp.serve.offers import offers


@dataclass(frozen=True)
class Served:
    """One loaded model under one or more names."""

    loaded: LoadedModel
    serving: Serving
    names: tuple[str, ...]
    created: int = field(default_factory=lambda: int(time.time()))

    def name_of(self, asked: str | None) -> str:
        """The name to answer under; no name means the first. Raises HttpError (404) for another model's."""
        if asked is None:
            return self.names[0]
        if asked not in self.names:
            hint = f"this server has {', '.join(self.names)}"
            raise HttpError(404, f"there is no model {shown(asked)}", hint=hint, param="model", code="model_not_found")
        return asked

    @cached_property
    def defaults(self) -> SamplingParams:
        """The checkpoint's sampling settings, else OpenAI's: temperature 1, everything else off."""
        return recommended_params(self.loaded.generation, SamplingParams(max_tokens=None), max_tokens=None)

    @cached_property
    def promises(self) -> Promises:
        """How this server keeps the modes."""
        return Promises(self.loaded, self.serving)

    @cached_property
    def grammars(self) -> Grammars:
        """What compiles the grammars of requests."""
        return make_grammars(self.loaded)

    @cached_property
    def fingerprint(self) -> str:
        """Equal fingerprints give equal answers to equal seeded requests."""
        loaded = self.loaded
        kv = getattr(loaded.executor, "kv", "")
        identity = f"{loaded.source_hash} {sorted(loaded.formats.items())} {kv} {version('offramp')}"
        identity += self.promises.identity
        return f"fp_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"

    def listing(self) -> dict[str, object]:
        """GET /v1/models."""
        return {"object": "list", "data": [self.card(name) for name in self.names]}

    def card(self, name: str) -> dict[str, object]:
        """GET /v1/models/{name}."""
        return {
            "id": self.name_of(name),
            "object": "model",
            "created": self.created,
            "owned_by": "offramp",
            "root": self.names[0],
            "parent": None,
            "max_model_len": self.loaded.max_context,
            "offramp": offers(self.loaded, self.serving, self.promises),
        }
