"""`offramp bench serve`: load on an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli import options
from offramp.cli.messages import counted, say
from offramp.cli.streams import put
from offramp.errors import InvalidRequestError, ResourceError
from offramp.params import check_choice, check_int, check_number

if TYPE_CHECKING:
    from offramp.bench.serve.load import Load
    from offramp.bench.serve.prompts import Endpoint, Prompt
    from offramp.bench.serve.run import Pace
    from offramp.bench.serve.summary import Fields

KEY = "OPENAI_API_KEY"
RANDOM_PROMPTS = 100
MOST_PROMPTS = 100_000
MOST_TOKENS = 1_000_000
MOST_WORDS = 2**26
LONGEST_SECONDS = 86_400.0


def command(
    base_url: Annotated[str, typer.Option(help="The server's address.")] = "http://127.0.0.1:8000",
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model to ask for.", show_default="the server's first")
    ] = None,
    endpoint: Annotated[str, typer.Option(help="chat or completions.")] = "chat",
    dataset: Annotated[str, typer.Option(help="random or jsonl.")] = "random",
    dataset_path: Annotated[
        Path | None, typer.Option(help='JSONL file, each line with "prompt" or "messages".')
    ] = None,
    num_prompts: Annotated[
        int | None, typer.Option(help="Requests to send.", show_default=f"{RANDOM_PROMPTS}, or the whole file")
    ] = None,
    request_rate: Annotated[
        float, typer.Option(help="Requests a second, at random times; inf: all at once.")
    ] = math.inf,
    max_concurrency: Annotated[int | None, typer.Option(help="Most requests at once.", show_default="no limit")] = None,
    random_input_len: Annotated[int, typer.Option(help="Words of a random prompt, about as many tokens.")] = 128,
    random_output_len: Annotated[int, typer.Option(help="Tokens of an answer at most, of any dataset.")] = 64,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Ask for answers that go on after end tokens.")
    ] = False,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    extra_body: Annotated[str, typer.Option(help="JSON object with more fields for every request.")] = "{}",
    seed: Annotated[int, typer.Option(help="Fixes random prompts and times.")] = 0,
    duration_limit: Annotated[float, typer.Option(help="Seconds after which what still runs is cut off.")] = 600.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="File for all numbers, as one JSON object.")] = None,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Load another machine, which must be yours.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Load an OpenAI-compatible server and measure what its clients wait for.

    Ctrl-C shows what was measured so far. A key is taken from OPENAI_API_KEY.
    """
    from offramp.bench.serve.target import check_extra, server_base

    base = server_base(base_url, allow_remote=allow_remote)
    check_choice("--endpoint", endpoint, ("chat", "completions"))
    check_number("--temperature", temperature, 0, 1e6)
    asked = {"endpoint": endpoint, "temperature": temperature, "ignore_eos": ignore_eos}
    extra = check_extra(_json(extra_body))
    pace = _pace(request_rate, max_concurrency, duration_limit, seed)
    if json_file is not None and not json_file.parent.is_dir():
        raise InvalidRequestError(f"--json {json_file}: there is no such folder", hint="make it, or name another")
    if dataset_path is not None or dataset == "jsonl":
        prompts = _file_prompts(dataset, dataset_path, endpoint, num_prompts, random_output_len)
    else:
        check_choice("--dataset", dataset, ("random", "jsonl"))
        prompts = _random_prompts(endpoint, num_prompts, random_input_len, random_output_len, seed)
    load, fields, settings = asyncio.run(_run(base, model, prompts, pace, asked, extra, allow_remote))
    from offramp.bench.serve.report import report

    put(report(fields) + "\n")
    _write(json_file, {"benchmark": "serve", "dataset": dataset, "seed": seed, **settings, **fields})
    _finish(load)


async def _run(
    base: str,
    model: str | None,
    prompts: list[Prompt],
    pace: Pace,
    asked: dict[str, Any],
    extra: dict[str, object],
    allow_remote: bool,
) -> tuple[Load, Fields, Fields]:
    """The load, its numbers, and what was asked for."""
    from offramp.bench.serve.client import Client
    from offramp.bench.serve.run import first_model, measure
    from offramp.bench.serve.target import Target

    async with Client(api_key=_api_key(), use_proxies=allow_remote) as client:
        named = model or await first_model(client, base)
        target = Target(base=base, model=named, extra=extra, **asked)
        say(f"{counted(len(prompts), 'request')} to {target.url} for {named}; Ctrl-C ends it with what is measured")
        load, fields = await measure(client, target, prompts, pace)
    settings = {
        "base_url": base,
        "model": named,
        **asked,
        "extra_body": extra,
        "num_prompts": len(prompts),
        "request_rate": "inf" if math.isinf(pace.request_rate) else pace.request_rate,
        "max_concurrency": pace.max_concurrency,
        "duration_limit": pace.duration_limit,
    }
    return load, fields, settings


def _pace(request_rate: float, max_concurrency: int | None, duration_limit: float, seed: int) -> Pace:
    from offramp.bench.serve.run import Pace

    check_number("--request-rate", request_rate, 0, math.inf, open_low=True)
    check_int("--max-concurrency", max_concurrency, 1, MOST_PROMPTS, optional=True)
    check_number("--duration-limit", duration_limit, 0, LONGEST_SECONDS, open_low=True)
    check_int("--seed", seed, 0, 2**64 - 1)
    return Pace(request_rate=request_rate, max_concurrency=max_concurrency, duration_limit=duration_limit, seed=seed)


def _random_prompts(endpoint: str, num_prompts: int | None, input_len: int, output_len: int, seed: int) -> list[Prompt]:
    from offramp.bench.serve.prompts import random_prompts

    count = RANDOM_PROMPTS if num_prompts is None else num_prompts
    check_int("--num-prompts", count, 1, MOST_PROMPTS)
    check_int("--random-input-len", input_len, 1, MOST_WORDS // count)
    check_int("--random-output-len", output_len, 1, MOST_TOKENS)
    return random_prompts(_endpoint(endpoint), count=count, input_len=input_len, output_len=output_len, seed=seed)


def _file_prompts(
    dataset: str, path: Path | None, endpoint: str, num_prompts: int | None, output_len: int
) -> list[Prompt]:
    from offramp.bench.serve.prompts import read_prompts

    if path is None or dataset != "jsonl":
        raise InvalidRequestError(
            f"--dataset {dataset} does not go with --dataset-path {path}",
            hint="a file is read with --dataset jsonl --dataset-path FILE",
        )
    check_int("--num-prompts", num_prompts, 1, MOST_PROMPTS, optional=True)
    check_int("--random-output-len", output_len, 1, MOST_TOKENS)
    return read_prompts(path, _endpoint(endpoint), count=num_prompts, output_len=output_len)


def _endpoint(name: str) -> Endpoint:
    return "chat" if name == "chat" else "completions"


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"--extra-body is not JSON: {error}", hint='such as {"top_k": 20}') from error


def _api_key() -> str | None:
    """From the environment, so that it is in no list of processes."""
    key = os.environ.get(KEY) or None
    if key is not None and not (key.isascii() and key.isprintable()):
        raise InvalidRequestError(f"{KEY} holds characters that no key has", hint="set it anew, without line breaks")
    return key


def _write(path: Path | None, result: Fields) -> None:
    if path is not None:
        from offramp.bench.provenance import provenance
        from offramp.whole_file import whole_file

        with whole_file(path) as file:
            file.write(json.dumps({**result, **provenance()}, allow_nan=False).encode() + b"\n")


def _finish(load: Load) -> None:
    """End as the load did: an interrupt stays one, and a load without any answer has failed."""
    if load.num_cut:
        say(f"note: {counted(load.num_cut, 'request')} cut off ({load.ended_by}) count in no number but that one")
    if load.ended_by == "interrupt":
        raise KeyboardInterrupt
    if all(sample.error for sample in load.samples):
        first = next((f"{sample.error}: {sample.detail}" for sample in load.samples), load.ended_by)
        raise ResourceError(f"no request was answered ({first})", hint="is the server up, and the model its own?")
