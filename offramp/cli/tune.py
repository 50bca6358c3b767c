"""`offramp tune`: which options serve a model fastest here, on a user's prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from offramp.cli import options
from offramp.cli.messages import say
from offramp.cli.streams import put
from offramp.cli.workloads import shipped_prompts, tell_refused
from offramp.errors import InvalidRequestError
from offramp.params import check_choice, check_int, check_number

if TYPE_CHECKING:
    from offramp.bench.tune.candidates import Space
    from offramp.bench.tune.processes import Processes
    from offramp.bench.tune.run import Tuned, Wish
    from offramp.bench.workloads.item import Workload

MOST_STREAMS = 256
MOST_MINUTES = 10_000.0


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Path, short name, pypi:package or hf:org/name.")
    ] = options.DEFAULT_MODEL,
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help='Lines of JSON with "prompt" or "messages" each.', show_default="60 that come along"
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the profile goes; replaces an earlier one.")
    ] = Path("profile.yaml"),
    minutes: Annotated[float, typer.Option(help="Time for all of it.")] = 10.0,
    streams: Annotated[int, typer.Option(help="Requests at once.")] = 1,
    max_tokens: Annotated[int, typer.Option(help="Of an answer.")] = 128,
    raw: Annotated[bool, typer.Option("--raw", help="Take prompts as they are, without the chat template.")] = False,
    limit: Annotated[int | None, typer.Option(help="Prompts to use.", show_default="all")] = None,
    exits: options.Exits = None,
    risk: Annotated[
        float | None, typer.Option(help="Try the exits that were calibrated for this loss of quality, too.")
    ] = None,
    drafter: options.DrafterPack = None,
    draft_model: options.DraftModel = None,
    weights: Annotated[
        str, typer.Option(help="Weight format: auto, f32, q8 or q4; several, as q8,q4, are compared.")
    ] = "auto",
    kv: options.Kv = "f16",
    threads: Annotated[
        int | None, typer.Option(help="Threads.", show_default="the CPUs at hand, or what is faster")
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Measure on your prompts which options serve a model fastest here, and write a profile for `offramp serve`.

    Whatever is recommended beat plain decoding by more than the noise. Answers stay what they are, unless a --risk or
    several --weights are given. The result is one line of JSON, too.
    """
    from offramp.bench.tune.run import Wish, tune
    from offramp.bench.workloads.read import check_streams
    from offramp.llm.profile_file import check_profile_target, write_profile
    from offramp.model.sources import resolve

    check_number("minutes", minutes, 0.0, MOST_MINUTES, open_low=True)
    check_int("streams", streams, 1, MOST_STREAMS)
    check_int("max_tokens", max_tokens, 1)
    check_profile_target(output)
    space = _space(
        weights=weights,
        kv=kv,
        threads=threads,
        streams=streams,
        exits=exits,
        risk=risk,
        drafter=drafter,
        draft_model=draft_model,
    )
    _check_space(space, model)
    workload = _workload(prompts, raw=raw, limit=limit)
    check_streams(workload, streams)
    resolve(model)  # fetched, if need be, before the minutes begin
    wish = Wish(model=model, workload=workload, space=space, max_tokens=max_tokens, minutes=minutes)
    with _stand(wish) as stand:
        tuned = tune(wish, stand, say)
    try:
        write_profile(output, tuned.profile, notes=tuned.notes, lost=tuned.lost)
    finally:
        put(json.dumps({"benchmark": "tune", "profile": str(output), **tuned.fields()}) + "\n")
    _tell(tuned, output)


def _space(
    *,
    weights: str,
    kv: str,
    threads: int | None,
    streams: int,
    exits: str | None,
    risk: float | None,
    drafter: str | None,
    draft_model: str | None,
) -> Space:
    from offramp.bench.tune.candidates import Space
    from offramp.draft import OFF
    from offramp.llm.model_flags import ModelFlags
    from offramp.model.tensors import WeightFormat
    from offramp.native.threads import default_threads

    formats = tuple(part.strip() for part in weights.split(","))
    for fmt in formats:
        check_choice("weights", fmt, get_args(WeightFormat))
    if len(set(formats)) < len(formats):
        raise InvalidRequestError(f"--weights {weights} names one twice", hint="name each once", param="weights")
    return Space(
        common=ModelFlags(weights=formats[0], kv=kv, threads=threads, drafter=OFF if drafter == OFF else None),
        formats=formats,
        streams=streams,
        num_cpus=default_threads(),
        exits=exits,
        risk=risk,
        drafter=None if drafter == OFF else drafter,
        draft_model=draft_model,
    )


def _check_space(space: Space, model: str) -> None:
    """Refuse what can't be tried before anything starts, though minutes later it would be found out anyhow."""
    from offramp.bench.tune.candidates import structures
    from offramp.draft.pack_file import read_drafter
    from offramp.exits.certificate import FILE_NAME
    from offramp.exits.pack_file import read_pack

    structures(space)
    if space.drafter is not None:
        read_drafter(space.drafter)
    if space.exits is not None:
        folder = read_pack(space.exits).folder
        if space.risk is not None and folder is not None and not (folder / FILE_NAME).is_file():
            hint = f"make one: offramp calibrate {model} --exits {space.exits} --risk {space.risk:g} --prompts FILE"
            raise InvalidRequestError(f"{space.exits} has no calibration for --risk", hint=hint, param="risk")


def _workload(path: Path | None, *, raw: bool, limit: int | None) -> Workload:
    """The prompts, telling of lines that can't be run."""
    from offramp.bench.workloads import read_workload

    if path is None:
        return shipped_prompts(limit, raw=raw, asked_by="without --prompts")
    workload = read_workload(path, limit=limit, raw=raw)
    tell_refused(workload, str(path))
    return workload


def _stand(wish: Wish) -> Processes:
    from offramp.bench.tune.processes import Processes

    return Processes(
        wish.model,
        wish.items(),
        streams=wish.space.streams,
        max_tokens=wish.max_tokens,
        seconds=60 * wish.minutes,
    )


def _tell(tuned: Tuned, output: Path) -> None:
    """What came of it, for people."""
    for line in tuned.lost:
        say(line)
    gain = tuned.profile.gain
    if gain is None:
        say(f"nothing surely beats plain decoding here: {output} serves that")
    else:
        interval = f"{gain.low:.2f} to {gain.high:.2f}"
        say(f"{tuned.method}: {gain.ratio:.2f} times ({interval}) the speed of plain decoding; written to {output}")
    say(f"use it: offramp serve --profile {output}")
