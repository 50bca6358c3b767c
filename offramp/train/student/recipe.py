"""Every setting of the training of a student, as it is kept beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from offramp.errors import InvalidRequestError
from offramp.train.drafter.recipe import DrafterRecipe

USUAL_LAYERS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(DrafterRecipe):
    """A student's: some of the target's layers, between its embedding and its head."""

    layers: tuple[int, ...] = ()  # of the target's, from 0, rising; (): num_layers of them
    num_layers: int | None = None  # None: 6, of small models half
    coverage: float = 0.999
    other_ids: int = 1024  # drawn at each step to stand for the tokens that are seldom
    temperature: float = 0.7
    context: int = 512
    batch_rows: int = 2048
    learning_rate: float = 1e-3


def with_layers(recipe: Recipe, num_layers: int) -> Recipe:
    """The recipe with the layers named, of a target of so many. Raises InvalidRequestError for impossible ones."""
    layers = recipe.layers
    if not layers:
        usual = max(1, min(USUAL_LAYERS, num_layers // 2))
        wanted = usual if recipe.num_layers is None else recipe.num_layers
        if not 1 <= wanted < num_layers:
            raise _impossible(f"a student of {wanted} layers is", num_layers, f"1 to {num_layers - 1} layers")
        layers = spread_layers(wanted, num_layers)
    elif recipe.num_layers is not None and recipe.num_layers != len(layers):
        raise InvalidRequestError(
            f"{recipe.num_layers} layers and the layers {_listed(layers)} contradict each other",
            hint="give one of --layers and --num-layers",
        )
    fits = 0 <= layers[0] <= layers[-1] < num_layers and list(layers) == sorted(set(layers))
    if not fits or len(layers) == num_layers:
        raise _impossible(
            f"layers {_listed(layers)} are", num_layers, f"rising numbers in 0..{num_layers - 1}, not all"
        )
    return replace(recipe, layers=layers, num_layers=len(layers))


def spread_layers(count: int, num_layers: int) -> tuple[int, ...]:
    """So many layers at like distances, the first and the last among them."""
    if count == 1:
        return (0,)
    gaps = count - 1
    return tuple((i * (num_layers - 1) + gaps // 2) // gaps for i in range(count))


def _impossible(what: str, num_layers: int, hint: str) -> InvalidRequestError:
    return InvalidRequestError(f"{what} impossible for a model of {num_layers}", hint=hint)


def _listed(layers: Sequence[int]) -> str:
    return ",".join(map(str, layers))
