"""`offramp serve`: an OpenAI-compatible server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from offramp.cli import options
from offramp.cli.messages import counted, note_idle_exits, say
from offramp.cli.named_models import NamedModel, named_models
from offramp.cli.pipeline_file import read_pipeline_file
from offramp.cli.profiled import given_options, profiled_models

if TYPE_CHECKING:
    from socket import socket

    from offramp.collaborate.pipeline.spec import PipelineSpec
    from offramp.serve.hosted import When
    from offramp.serve.models import Models
    from offramp.serve.request_log import LogFormat
    from offramp.serve.settings import ServerSettings

KEY_VARIABLE = "OFFRAMP_API_KEY"
IDLE_EXITS = "it is for requests that ask for mode calibrated or unchecked, or draft early_exit"


def command(
    context: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]MODEL",
            help="Path, short name, pypi:package or hf:org/name; several under names of their own.",
            show_default=options.DEFAULT_MODEL,
        ),
    ] = None,
    models_config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON file of models, each with options of its own.")
    ] = None,
    pipelines: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="YAML or JSON file of pipelines: two of the models, or one elsewhere, as one."
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Model and options as `offramp tune` found them; flags win."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory for weights and K/V of all models, such as 4GiB: idle ones are unloaded for others.",
            show_default="three quarters of the free memory for several models",
        ),
    ] = None,
    load: Annotated[
        str, typer.Option(help="When models are loaded: start (as far as --memory goes), or demand (when asked for).")
    ] = "start",
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
    keep_alive: Annotated[
        float | None,
        typer.Option(
            help="Seconds without a request until a model is unloaded.", show_default="until another needs its memory"
        ),
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
        typer.Option(help="Drafters, or off.", show_default="auto"),
    ] = None,
    max_draft: Annotated[int | None, typer.Option(help="Draft tokens of a step at most.", show_default="16")] = None,
    draft_length: Annotated[str, typer.Option(help="Who chooses how long drafts are.")] = "goodput",
    draft_memory: Annotated[str, typer.Option(help="Memory for texts that drafts learn from; 0: none.")] = "64MiB",
    draft_model: options.DraftModel = None,
    drafter: options.DrafterPack = None,
    little_rollback: options.LittleRollback = None,
    little_fallback: options.LittleFallback = None,
    max_little: options.MaxLittle = None,
    little_calibration: options.LittleCalibration = None,
    verifier: options.Verifier = "exact",
    weights: options.Weights = "auto",
    kv: options.Kv = "f16",
    kv_memory: options.KvMemory = None,
    threads: options.Threads = None,
    tool_call_parser: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How the model writes calls of tools: hermes, qwen3-coder, mistral, mistral-args, llama3, phi4, "
            "phi4-functools or json; auto goes by its chat template.",
        ),
    ] = "auto",
    request_timeout: Annotated[float, typer.Option(help="Seconds that a request may take.")] = 600.0,
    drain_seconds: Annotated[float, typer.Option(help="Seconds to finish requests when told to stop.")] = 30.0,
    max_body: Annotated[str, typer.Option(help="Largest request body.")] = "4MiB",
    log_format: Annotated[str, typer.Option(help="Log on stderr: text or json.")] = "text",
    debug: options.Debug = False,
) -> None:
    """Serve one MODEL or several over HTTP with OpenAI's API. Ctrl-C finishes what runs, a second one stops at once."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # each text is one thread's work: no threads besides

    from offramp.llm.memory import parse_bytes
    from offramp.llm.model_flags import ModelFlags, whole_number
    from offramp.serve.pair import check_starts
    from offramp.serve.settings import ServerSettings

    flags = ModelFlags(
        load=load,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        mode=mode,
        exits=exits,
        risk=risk,
        exit_threshold=exit_threshold,
        exit_measure=exit_measure,
        exit_predictor=exit_predictor,
        exit_decay=exit_decay,
        exit_fill=exit_fill,
        exit_batching=exit_batching,
        draft=draft,
        max_draft=max_draft,
        draft_length=draft_length,
        draft_memory=draft_memory,
        draft_model=draft_model,
        drafter=drafter,
        little_rollback=little_rollback,
        little_fallback=little_fallback,
        max_little=max_little,
        little_calibration=little_calibration,
        verifier=verifier,
        weights=weights,
        kv=kv,
        kv_memory=kv_memory,
        threads=threads,
        tool_call_parser=tool_call_parser,
    )
    if profile is None:
        models = models or ([] if models_config else [options.DEFAULT_MODEL])
        named = named_models(models, models_config, served_model_name or (), flags)
    else:
        given = given_options(context)
        named = profiled_models(profile, models or (), models_config, served_model_name or (), flags, given)
    first = {name: each.names[0] for each in named for name in each.names}
    specs = [] if pipelines is None else read_pipeline_file(pipelines, first)
    check_starts(specs, {name: each.start for each in named for name in each.names})
    settings = ServerSettings(
        api_keys=tuple(api_key or _keys_of_environment()),
        allowed_hosts=tuple(allowed_host or ()),
        isolate_keys=isolate_keys,
        max_queued=whole_number("max_queue", max_queue),
        max_body_bytes=parse_bytes(max_body, name="max_body"),
        request_seconds=request_timeout,
        drain_seconds=drain_seconds,
        keep_alive_seconds=keep_alive,
    )
    num_bytes = None if memory is None else parse_bytes(memory, name="memory")

    from offramp.serve.listen import bind
    from offramp.serve.request_log import log_to_stderr

    with log_to_stderr(cast("LogFormat", log_format)), bind(host, port) as listener:
        for each in named:
            note_idle_exits(each.flags.exits, each.flags.mode, IDLE_EXITS, each.flags.draft)
        run(named, num_bytes, replace(settings, allowed_hosts=_hosts(settings, host, listener)), listener, specs)


def run(
    named: Sequence[NamedModel],
    memory: int | None,
    settings: ServerSettings,
    listener: socket,
    specs: Sequence[PipelineSpec] = (),
) -> None:
    """Load the models that are wanted at the start, and serve until a signal."""
    from offramp.serve.app import make_app
    from offramp.serve.listen import is_loopback, serve, url_of
    from offramp.serve.pipelines import Pipelines, load_pipeline

    loaded = [load_pipeline(spec) for spec in specs]
    models = hosted_models(named, memory, settings)
    pipelines = Pipelines(loaded, models) if loaded else None
    try:
        models.load_at_start()
        if pipelines is not None:
            pipelines.check()
        if not (is_loopback(listener) or settings.api_keys):
            say("warning: whoever reaches this address may use the server, since there is no --api-key")
        app = make_app(models, settings, pipelines)
        names = ", ".join([*(name for each in named for name in each.names), *(spec.name for spec in specs)])
        ready = f"offramp serves {names} at {url_of(listener)}/v1"
        serve(
            app,
            models,
            listener,
            drain_seconds=settings.drain_seconds,
            ready=lambda: say(ready),
            stopping=lambda count: say(f"finishing {counted(count, 'request')}; again to stop at once"),
        )
    finally:
        models.stop()


def hosted_models(named: Sequence[NamedModel], memory: int | None, settings: ServerSettings) -> Models:
    """The models, not loaded yet, within a memory. Raises ResourceError for more than there is."""
    from offramp.llm.memory import MemoryShare, shared_memory
    from offramp.serve.hosted import Hosted
    from offramp.serve.models import Models
    from offramp.serve.startable import Startable

    memory = shared_memory(memory, len(named))
    share = None if memory is None else MemoryShare(memory, len(named))
    hosted = []
    for each in named:
        startable = Startable(each.names, each.start, settings.max_queued, share, say)
        when: When = "demand" if each.flags.load == "demand" else "start"
        hosted.append(Hosted(each.names, startable, when=when, mode=each.flags.mode))
    return Models(
        hosted,
        memory=memory,
        keep_alive_seconds=settings.keep_alive_seconds,
        max_waiting=max(1, settings.max_queued),
    )


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
