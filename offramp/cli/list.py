"""`offramp list`: the models in the cache."""

from __future__ import annotations

import json

from offramp.cli import options
from offramp.cli.messages import mebibytes, say
from offramp.cli.streams import put


def command(as_json: options.Json = False, debug: options.Debug = False) -> None:
    """List the fetched models. (Those of hf: live in the hub's own cache.)"""
    from offramp.model.sources import cached_models

    models = cached_models()
    if as_json:
        fields = [
            {"name": model.name, "source": model.source, "path": str(model.path), "num_bytes": model.num_bytes}
            for model in models
        ]
        put(json.dumps(fields, ensure_ascii=False) + "\n")
        return
    if not models:
        say("no models fetched yet: offramp pull NAME")
    width = max((len(model.name) for model in models), default=0)
    for model in models:
        put(f"{model.name:<{width}}  {mebibytes(model.num_bytes):>10}  {model.path}\n")
