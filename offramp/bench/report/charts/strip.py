"""An answer's tokens as bars side by side: how high tells what the colours in the text tell."""

from __future__ import annotations

from collections.abc import Sequence

from offramp.bench.report.html import Html, element

WIDTH, HEIGHT = 720, 40
SHORT = 0.35
"""Height of a drafted token's bar."""
SHADES = 8
LEAST_BARS = 60
"""Bars of shorter answers are no wider than those of one of so many tokens."""


def shade(layers: int, fewest: int, most: int) -> int:
    """0 for the fewest layers to 7 for the most."""
    return SHADES - 1 if most <= fewest else round((SHADES - 1) * (layers - fewest) / (most - fewest))


def depth_strip(layers: Sequence[int], most: int) -> Html:
    """As high as layers ran."""
    bars = [(count / most, "bar") for count in layers]
    mean = sum(layers) / len(layers)
    return _strip(bars, f"Layers run, token by token: {min(layers)} to {max(layers)}, {mean:.1f} on average")


def draft_strip(drafted: Sequence[bool]) -> Html:
    """Low where a draft foresaw the token, high where the model came to it itself."""
    bars = [(SHORT, "drafted") if flag else (1.0, "own") for flag in drafted]
    return _strip(bars, f"{sum(drafted)} of {len(drafted)} tokens came from drafts")


def _strip(bars: Sequence[tuple[float, str]], title: str) -> Html:
    step = WIDTH / max(len(bars), LEAST_BARS)
    drawn = [
        element(
            "rect",
            x=float(step * number),
            y=float(HEIGHT * (1 - part)),
            width=float(step * 0.88),
            height=float(HEIGHT * part),
            class_=class_,
        )
        for number, (part, class_) in enumerate(bars)
    ]
    return element(
        "svg",
        element("title", title),
        *drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        class_="strip",
    )
