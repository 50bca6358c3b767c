"""How far each layer's K/V reaches for one sequence: plain ints, no tensors.

Fill counts committed tokens only; draft rows live in scratch slots above the committed length. Each layer's K/V is a
prefix (no holes), and fill never grows with depth: a token that left early has K/V in the shallow layers only.
"""

from __future__ import annotations


class FillState:
    """Fill per layer 0..num_layers-1, and per side layer (ids from num_layers on), whose fill does not follow depth."""

    def __init__(self, num_layers: int) -> None:
        assert num_layers > 0
        self.num_layers = num_layers
        self.tainted_from: int | None = None  # first position whose K/V is approximate in some layer
        self._fill = [0] * num_layers
        self._side: dict[int, int] = {}

    @property
    def filled(self) -> int:
        """Tokens with K/V in the first layer."""
        return self._fill[0]

    @property
    def paid(self) -> int:
        """Tokens with K/V in every layer."""
        return self._fill[-1]

    @property
    def exact(self) -> int:
        """Tokens whose K/V is in every layer and is what full depth would have written."""
        return self.paid if self.tainted_from is None else min(self.paid, self.tainted_from)

    def at(self, layer: int) -> int:
        return self._fill[layer] if layer < self.num_layers else self._side.get(layer, 0)

    def debt(self, layer: int) -> int:
        """Tokens that the first layer has and this one lacks."""
        return self._fill[0] - self._fill[layer]

    def advance(self, first: int, count: int, start: int, stop: int) -> None:
        """Positions first..count-1 were written in layers start..stop-1 (rewriting known ones is allowed)."""
        assert 0 <= start < stop <= self.num_layers
        assert first <= self._fill[stop - 1], f"hole: layer {stop - 1} ends at {self._fill[stop - 1]}, not {first}"
        assert count >= self._fill[start], "advance never shortens; that is trim's job"
        assert start == 0 or self._fill[start - 1] >= count, f"layer {start} would be ahead of the one below"
        self._fill[start:stop] = [count] * (stop - start)

    def advance_side(self, layer: int, first: int, count: int) -> None:
        """Positions first..count-1 were written in a side layer; it never runs ahead of the first layer."""
        assert layer >= self.num_layers
        assert first <= self.at(layer) <= count <= self._fill[0]
        self._side[layer] = count

    def adopt(self, count: int) -> None:
        """An empty sequence takes over `count` cached positions, exact in all layers (side layers stay empty)."""
        assert self._fill[0] == 0, "only an empty sequence adopts cached pages"
        self._fill = [count] * self.num_layers

    def taint(self, position: int) -> None:
        """From `position` on some K/V is approximate; the earliest such position is kept."""
        self.tainted_from = position if self.tainted_from is None else min(self.tainted_from, position)

    def trim(self, count: int) -> int:
        """Clamp every layer to `count` tokens; returns how many the first layer lost."""
        assert count >= 0
        lost = max(0, self._fill[0] - count)
        self._fill = [min(fill, count) for fill in self._fill]
        self._side = {layer: min(fill, count) for layer, fill in self._side.items()}
        if self.tainted_from is not None and self.tainted_from >= count:
            self.tainted_from = None
        return lost

    def check_integrity(self) -> None:
        assert all(deep <= shallow for shallow, deep in zip(self._fill, self._fill[1:], strict=False)), self._fill
        assert self._fill[-1] >= 0
        assert all(0 <= fill <= self._fill[0] for fill in self._side.values()), self._side
        assert self.tainted_from is None or self.tainted_from >= 0
