"""Where each token of an answer came from: a draft, or so many layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from offramp.bench.results.lines import ItemLine


@dataclass(frozen=True, slots=True)
class Origins:
    """Of an answer's tokens, one of the two: layers run, or whether a draft foresaw it."""

    layers: Sequence[int] = ()
    drafted: Sequence[bool] = ()


def origins(item: ItemLine) -> Origins | None:
    """None where the line tells neither: all layers ran for each token, and no draft did."""
    if item.exit_layers and len(item.exit_layers) == len(item.token_ids):
        return Origins(layers=item.exit_layers)
    flags = _drafted(item)
    return Origins(drafted=flags) if any(flags) else None


def samples(items: Iterable[ItemLine], most: int) -> dict[str, list[ItemLine]]:
    """The first prompts of different tasks, by name, with their answers by all methods that show something."""
    telling = [item for item in items if item.text is not None and origins(item) is not None]
    names: dict[str, str] = {}
    for item in telling:
        names.setdefault(item.task, item.item)
    chosen = list(names.items())[:most]
    return {
        f"{task}: {name}": _once_each([item for item in telling if (item.task, item.item) == (task, name)])
        for task, name in chosen
    }


def _drafted(item: ItemLine) -> list[bool]:
    """All tokens of a step but its last came from a draft; empty where steps don't add up to the answer."""
    flags = [flag for _, count in item.steps for flag in [True] * (count - 1) + [False]]
    if len(flags) == len(item.token_ids) - 1:  # the first token is the prompt's
        return [False, *flags]
    return flags if len(flags) == len(item.token_ids) else []


def _once_each(items: Sequence[ItemLine]) -> list[ItemLine]:
    """One answer a method: its first."""
    return list({item.method: item for item in reversed(items)}.values())[::-1]
