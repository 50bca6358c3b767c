"""One load on one server, from its settings to its numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

from offramp.bench.serve.chunks import StreamError
from offramp.bench.serve.client import Client
from offramp.bench.serve.counters import read_counts
from offramp.bench.serve.load import Load, arrivals, run_load
from offramp.bench.serve.prompts import Prompt
from offramp.bench.serve.summary import Fields, summary
from offramp.bench.serve.target import Target
from offramp.errors import ModelNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast requests come, and until when."""

    request_rate: float = float("inf")  # a second
    max_concurrency: int | None = None
    duration_limit: float = 600.0  # seconds
    seed: int = 0


async def measure(client: Client, target: Target, prompts: list[Prompt], pace: Pace) -> tuple[Load, Fields]:
    """Send the prompts; what came of them, and the numbers. The server's counters are read before and after."""
    metrics_url = f"{target.base}/metrics"
    before = read_counts(await client.page(metrics_url))
    load = await run_load(
        prompts,
        partial(client.ask, target),
        due=arrivals(len(prompts), pace.request_rate, pace.seed),
        max_concurrency=pace.max_concurrency,
        duration_limit=pace.duration_limit,
    )
    after = read_counts(await client.page(metrics_url)) if before else None
    speculation = after.since(before) if before and after else None
    return load, summary(load, speculation)


async def first_model(client: Client, base: str) -> str:
    """The model that the server names first. Raises ModelNotFoundError when it names none."""
    url = f"{base}/v1/models"
    try:
        page = await client.fetch(url)
    except StreamError as error:
        reason = error.detail or error.name
        hint = "is the server up? name its address with --base-url, and a model with --model"
        raise ModelNotFoundError(f"{url} can't be read: {reason}", hint=hint) from error
    try:
        model = json.loads(page)["data"][0]["id"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        hint = "name the server's address with --base-url, and a model with --model"
        raise ModelNotFoundError(f"{url} names no model", hint=hint) from error
    return str(model)
