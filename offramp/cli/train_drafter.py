"""`offramp train drafter`: an eagle's pack, or a student's directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offramp.cli import options
from offramp.cli.messages import say
from offramp.cli.streams import put
from offramp.cli.train_options import ModelName, Seed, Work, layer_numbers, work_beside
from offramp.errors import InvalidRequestError

OWN_OPTIONS = {"eagle": ("taps", "width", "unrolled"), "student": ("layers", "num_layers")}
"""By kind, what the other has no use for."""


def command(
    model: ModelName,
    prompts: Annotated[Path, typer.Option(help='Lines of JSON with a "prompt" each.')],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The drafter pack's folder; a student's, which must not exist.")
    ],
    kind: Annotated[
        str,
        typer.Option(
            help="eagle: a side layer over the model's hidden states. student: a model of some of its layers, "
            "for --draft-model."
        ),
    ] = "eagle",
    taps: Annotated[
        str | None,
        typer.Option(
            help="Eagle: depths whose hidden states it sees, separated by commas.", show_default="by the depth"
        ),
    ] = None,
    width: Annotated[int | None, typer.Option(help="Eagle: of its MLP.", min=1, max=65536, show_default="480")] = None,
    unrolled: Annotated[
        int | None,
        typer.Option(help="Eagle: draft tokens learned one behind the other.", min=1, max=8, show_default="3"),
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Student: the model's layers that it is made of, from 0, separated by commas.",
            show_default="at like distances",
        ),
    ] = None,
    num_layers: Annotated[
        int | None, typer.Option(help="Student: how many.", min=1, show_default="6, of small models half")
    ] = None,
    loss: Annotated[
        str,
        typer.Option(help="Between the model's distribution and the draft's: forward_kl, reverse_kl, jsd or tvd."),
    ] = "forward_kl",
    vocabulary: Annotated[
        int, typer.Option(help="Tokens that an eagle drafts, or a student learns at every step, at most.", min=2)
    ] = 8192,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Share of the answers' tokens that they are.", min=0.5, max=1, show_default="0.997, of students 0.999"
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Of an answer.", min=2)] = 192,
    temperature: Annotated[
        float | None,
        typer.Option(help="Of answers that are drawn; 0 is greedy.", min=0, show_default="0, for students 0.7"),
    ] = None,
    drawn: Annotated[
        float,
        typer.Option(help="Share of the answers to learn from that are drawn; the others are greedy.", min=0, max=1),
    ] = 0.5,
    minutes: Annotated[float, typer.Option(help="Of computing, for everything.", min=0.01)] = 90.0,
    steps: Annotated[
        int | None, typer.Option(help="Fit in so many steps, whatever time it takes.", min=1, show_default="none")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(min=1e-6, max=1, show_default="0.002, of students 0.001")
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Tokens a step.", min=16, show_default="1024, of students 2048")
    ] = None,
    disk: Annotated[str, typer.Option(help="Most that hidden states take in the work folder.")] = "3GiB",
    seed: Seed = 0,
    weights: options.Weights = "auto",
    threads: options.Threads = None,
    work: Work = None,
    debug: options.Debug = False,
) -> None:
    """Train a drafter for MODEL as it is, on its own answers to the prompts; writes a drafter pack, or a small model.

    Interrupted, it goes on where it was when called again.
    """
    from offramp.llm.memory import parse_bytes
    from offramp.train.drafter.recipe import loss_name

    _check_kind(kind, taps=taps, width=width, unrolled=unrolled, layers=layers, num_layers=num_layers)
    settings = options.given(
        seed=seed,
        loss=loss_name(loss),
        vocabulary=vocabulary,
        coverage=coverage,
        max_tokens=max_tokens,
        temperature=temperature,
        drawn=drawn,
        minutes=minutes,
        steps=steps,
        learning_rate=learning_rate,
        batch_rows=batch_tokens,
        disk=parse_bytes(disk, name="--disk"),
        taps=None if taps is None else layer_numbers(taps, "--taps"),
        width=width,
        unrolled=unrolled,
        layers=None if layers is None else layer_numbers(layers),
        num_layers=num_layers,
    )
    from offramp.train.extra import ready_torch

    ready_torch()
    place = work or work_beside(output)
    if kind == "student":
        from offramp.train.student.recipe import Recipe as StudentRecipe
        from offramp.train.student.run import train_student

        student = StudentRecipe(**settings)
        train_student(model, prompts, output, student, weights=weights, threads=threads, work=place, say=say)
    else:
        from offramp.train.drafter.recipe import Recipe
        from offramp.train.drafter.run import train_eagle

        eagle = Recipe(**settings)
        train_eagle(model, prompts, output, eagle, weights=weights, threads=threads, work=place, say=say)
    put(f"{output}\n")


def _check_kind(kind: str, **own: object) -> None:
    """Raise InvalidRequestError for another kind, and for options that only another kind has a use for."""
    if kind not in OWN_OPTIONS:
        raise InvalidRequestError(f"--kind {kind!r} is impossible", hint=f"it takes {' or '.join(OWN_OPTIONS)}")
    for name in options.given(**own):
        if name not in OWN_OPTIONS[kind]:
            flag = f"--{name.replace('_', '-')}"
            takes = ", ".join(f"--{each.replace('_', '-')}" for each in OWN_OPTIONS[kind])
            raise InvalidRequestError(f"{flag} means nothing to --kind {kind}", hint=f"of its own it has {takes}")
