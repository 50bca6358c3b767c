"""`offramp train`: early exits and drafters for a model, routers between models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli import options, train_drafter
from offramp.cli.messages import say
from offramp.cli.streams import put
from offramp.cli.train_options import ModelName, Seed, Work, layer_numbers, work_beside
from offramp.errors import InvalidRequestError

if TYPE_CHECKING:
    from offramp.exits.certificate import SamplingSettings

app = typer.Typer(
    help="Train early exits and drafters, which needs the extra `train` (torch), and routers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Exits = Annotated[
    str | None,
    typer.Option(
        "--layers", help="Exit points: layers before each, separated by commas.", show_default="by the model's depth"
    ),
]


@app.command("exits")
def exits(
    model: ModelName,
    prompts: Annotated[Path, typer.Option(help='Lines of JSON with a "prompt" each.')],
    output: Annotated[Path, typer.Option("--output", "-o", help="The exit pack's folder.")],
    layers: Exits = None,
    rank: Annotated[int, typer.Option(help="Of the adapters.", min=1, max=1024)] = 128,
    vocabulary: Annotated[int, typer.Option(help="Tokens that heads know, at most.", min=2)] = 8192,
    coverage: Annotated[
        float, typer.Option(help="Share of the answers' tokens that they know.", min=0.5, max=1)
    ] = 0.999,
    predictors: Annotated[str, typer.Option(help="mlp, linear or none.")] = "mlp",
    max_tokens: Annotated[int, typer.Option(help="Of an answer.", min=2)] = 128,
    temperature: Annotated[float, typer.Option(help="Of the answers; 0 is greedy.", min=0)] = 0.0,
    minutes: Annotated[float, typer.Option(help="Of computing, for everything.", min=0.01)] = 40.0,
    learning_rate: Annotated[float, typer.Option(min=1e-6, max=1)] = 2e-3,
    seed: Seed = 0,
    weights: options.Weights = "auto",
    threads: options.Threads = None,
    work: Work = None,
    debug: options.Debug = False,
) -> None:
    """Train exit heads and predictors for MODEL as it is, on its own answers to the prompts; writes an exit pack.

    Interrupted, it goes on where it was when called again.
    """
    from offramp.train.extra import ready_torch

    ready_torch()
    from offramp.exits.pack_config import PREDICTORS
    from offramp.train.exits.recipe import Recipe
    from offramp.train.exits.run import train_exits

    if predictors not in (*PREDICTORS, "none"):
        raise InvalidRequestError(f"--predictors {predictors!r} is impossible", hint="it takes mlp, linear or none")
    recipe = Recipe(
        seed=seed,
        layers=layer_numbers(layers),
        rank=rank,
        vocabulary=vocabulary,
        coverage=coverage,
        predictors=PREDICTORS.get(predictors),
        max_tokens=max_tokens,
        temperature=temperature,
        minutes=minutes,
        learning_rate=learning_rate,
    )
    train_exits(
        model, prompts, output, recipe, weights=weights, threads=threads, work=work or work_beside(output), say=say
    )
    put(f"{output}\n")


app.command("drafter")(train_drafter.command)


@app.command("layerskip")
def layerskip(
    context: typer.Context,
    model: ModelName,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model directory to write; must not exist.")],
    data: Annotated[
        Path | None, typer.Option(help='Lines of JSON with a "prompt" and a "reference" each.', show_default=False)
    ] = None,
    adapter: Annotated[
        Path | None,
        typer.Option(help="An earlier training's adapter, merged again instead of training.", show_default=False),
    ] = None,
    layers: Exits = None,
    rank: Annotated[int, typer.Option(help="Of the changes to the layers' matrices.", min=1, max=256)] = 7,
    whole: Annotated[bool, typer.Option("--whole", help="Train the matrices themselves; keeps no adapter.")] = False,
    minutes: Annotated[float, typer.Option(help="Of computing.", min=0.01)] = 60.0,
    steps: Annotated[int | None, typer.Option(help="End after so many steps.", min=1, show_default="none")] = None,
    learning_rate: Annotated[float, typer.Option(min=1e-6, max=1)] = 4e-3,
    batch_tokens: Annotated[int, typer.Option(help="Tokens a step.", min=16)] = 896,
    dropout: Annotated[float, typer.Option(help="Chance that a sample skips the last layer.", min=0, max=0.9)] = 0.1,
    exit_scale: Annotated[float, typer.Option(help="Weight of the exits' losses.", min=0, max=10)] = 0.5,
    curriculum: Annotated[str, typer.Option(help="rotational or gradual.")] = "rotational",
    period: Annotated[int, typer.Option(help="Steps in which each exit learns once, rotational.", min=1, max=64)] = 4,
    leaving: Annotated[
        float, typer.Option(help="Share of the samples whose tokens may leave, for propagate.", min=0, max=1)
    ] = 0.5,
    seed: Seed = 0,
    threads: options.Threads = None,
    work: Work = None,
    debug: options.Debug = False,
) -> None:
    """Fine-tune MODEL on pairs so that early layers say what the last one says; writes a model directory with its pack.

    Interrupted, it goes on where it was when called again. Part of the data is held out to measure exact match.
    """
    from offramp.train.extra import ready_torch

    ready_torch()
    from offramp.train.layerskip.recipe import Recipe
    from offramp.train.layerskip.run import fine_tune, rebuild
    from offramp.train.layerskip.schedule import CURRICULA

    if (data is None) == (adapter is None):
        raise InvalidRequestError("give --data or --adapter, one of them", hint="--data trains, --adapter merges again")
    chosen = next((each for each in CURRICULA if each == curriculum), None)
    if chosen is None:
        raise InvalidRequestError(f"--curriculum {curriculum!r} is impossible", hint="it takes rotational or gradual")
    if whole:
        _refuse(context, {"rank"}, "--whole", "whole matrices have no rank")
    if adapter is not None:
        used = {"model", "output", "adapter", "debug"}
        _refuse(context, _all_names(context) - used, "--adapter", "it says itself how it was trained")
        rebuild(model, adapter, output)
    elif data is not None:
        recipe = Recipe(
            seed=seed,
            rank=None if whole else rank,
            steps=steps,
            minutes=minutes,
            learning_rate=learning_rate,
            batch_rows=batch_tokens,
            exits=layer_numbers(layers),
            dropout=dropout,
            exit_scale=exit_scale,
            curriculum=chosen,
            period=period,
            leaving=leaving,
        )
        fine_tune(model, data, output, recipe, work=work or work_beside(output), threads=threads, say=say)
    put(f"{output}\n")


@app.command("router")
def router(
    model: ModelName,
    data: Annotated[Path, typer.Option(help="Lines of JSON with a prompt and what models made of it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The router pack's folder.")],
    kind: Annotated[str, typer.Option(help="auto, knn, linear, mlp, factors, or random.")] = "auto",
    depths: Annotated[
        str | None,
        typer.Option(
            help="Depths whose hidden states are tried, separated by commas.",
            show_default="half, three quarters and all of the layers",
        ),
    ] = None,
    little: Annotated[
        str | None, typer.Option(help="The model for easy prompts, by its name in the data.", show_default="little")
    ] = None,
    big: Annotated[
        str | None, typer.Option(help="The model for hard prompts, by its name in the data.", show_default="big")
    ] = None,
    held_out: Annotated[float, typer.Option(help="Share of the prompts for figures and certificates.")] = 0.4,
    risk: Annotated[
        list[float] | None, typer.Option(help="Loss of quality to certify a threshold for; can be repeated.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Chance that a certificate is wrong, at most.")] = 0.05,
    big_model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="With a risk: the model that answered as big, if it will here.", show_default="any"
        ),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="With a risk: of the recorded answers.", show_default="up to the context's end")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="A risk needs it: of the recorded answers; 0 is greedy.", show_default="none")
    ] = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    repetition_penalty: options.RepetitionPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    seed: Seed = 0,
    weights: options.Weights = "auto",
    kv: options.Kv = "f16",
    threads: options.Threads = None,
    work: Work = None,
    debug: options.Debug = False,
) -> None:
    """Train a router that says which prompts need the big model, over what MODEL makes of them; writes a router pack.

    MODEL is the one for easy prompts, where a pipeline is to use the pack. A risk is for answers that are drawn as the
    recorded ones; sampling options say how. Needs no torch. Interrupted, it goes on where it was when called again.
    """
    from offramp.train.router.recipe import Recipe
    from offramp.train.router.run import train_router

    others = options.given(
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
    )
    recipe = Recipe(
        kind=kind,
        depths=layer_numbers(depths, "--depths"),
        little=little,
        big=big,
        held_out=held_out,
        risks=tuple(risk or ()),
        sampling=_drawn(temperature, others),
        max_tokens=max_tokens,
        big_model=big_model,
        delta=delta,
        seed=seed,
    )
    train_router(
        model,
        data,
        output,
        recipe,
        weights=weights,
        kv=kv,
        threads=threads,
        work=work or work_beside(output),
        say=say,
    )
    put(f"{output}\n")


def _drawn(temperature: float | None, others: dict[str, Any]) -> SamplingSettings | None:
    """How recorded answers were drawn, if it is said."""
    from offramp.core import SamplingParams
    from offramp.exits.certificate import SamplingSettings

    if temperature is not None:
        return SamplingSettings.of(SamplingParams(temperature=temperature, **others))
    if others:
        name = next(iter(others))
        hint = "name the temperature of the recorded answers, too: 0 if they were greedy"
        raise InvalidRequestError(f"--{name.replace('_', '-')} without --temperature", hint=hint, param=name)
    return None


def _refuse(context: typer.Context, names: set[str], beside: str, why: str) -> None:
    """Raise for the first of these options that was given, as nobody would look at it."""
    for each in context.command.params:
        source = context.get_parameter_source(str(each.name))
        if each.name in names and source is not None and source.name == "COMMANDLINE":
            raise InvalidRequestError(
                f"{max(each.opts, key=len)} beside {beside}", hint=f"leave one of them out: {why}"
            )


def _all_names(context: typer.Context) -> set[str]:
    return {str(each.name) for each in context.command.params}
