"""A model in memory as clients know it: its names, its defaults, and what identifies it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version

from offramp.core import SamplingParams
from offramp.grammar import Grammars
from offramp.llm.defaults import recommended_params
from offramp.llm.loading import LoadedModel
from offramp.llm.making import make_grammars
from offramp.llm.promises import Promises
from offramp.llm.serving import Serving
from offramp.model.config_identity import config_identity
from offramp.model.tool_format import ToolFormat
from offramp.params import shown
from offramp.serve.errors import HttpError


@dataclass(frozen=True)
class Served:
    """One loaded model under one or more names."""

    loaded: LoadedModel
    serving: Serving
    names: tuple[str, ...]

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
    def tool_format(self) -> ToolFormat:
        """How the model writes calls of tools."""
        return self.serving.tool_format(self.loaded.template)

    @cached_property
    def grammars(self) -> Grammars:
        """What compiles the grammars of requests."""
        return make_grammars(self.loaded)

    @cached_property
    def fingerprint(self) -> str:
        """Equal fingerprints give equal answers to equal seeded requests."""
        loaded = self.loaded
        kv = getattr(loaded.executor, "kv", "")
        identity = f"{loaded.source_hash} {config_identity(loaded.config)} {sorted(loaded.formats.items())} {kv}"
        identity += f" {version('offramp')} {self.tool_format.name}{self.promises.identity}"
        return f"fp_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
