"""Draft tokens as a tree."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Draft tokens after a sequence's last token. Node i follows node `parents[i]` < i, or that last token when -1.

    `scores`, where the drafter gives them, are its estimates that a node stands given that its parent stands. `laws`
    are the distributions [vocab] that nodes were drawn from, with noise that decides nothing else; without them nodes
    count as chosen for certain.
    """

    token_ids: tuple[int, ...] = ()  # [nodes]
    parents: tuple[int, ...] = ()  # [nodes]
    scores: tuple[float, ...] = ()  # [nodes] in [0, 1], or none at all
    laws: tuple[NDArray[np.float64], ...] = field(default=(), compare=False)  # [nodes], or none at all

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.parents)
        assert len(self.scores) in (0, len(self.token_ids)), "a score for every node, or for none"
        assert len(self.laws) in (0, len(self.token_ids)), "a law for every node, or for none"
        assert all(-1 <= parent < node for node, parent in enumerate(self.parents)), self.parents

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def is_chain(self) -> bool:
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @staticmethod
    def chain(token_ids: abc.Sequence[int], scores: abc.Sequence[float] = ()) -> TokenTree:
        return TokenTree(tuple(token_ids), tuple(range(-1, len(token_ids) - 1)), tuple(scores))

    def depths(self) -> list[int]:
        """How many ancestors each node has."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths

    def paths(self) -> list[tuple[int, ...]]:
        """For each node the nodes from the root's child down to and including it."""
        paths: list[tuple[int, ...]] = []
        for node, parent in enumerate(self.parents):
            paths.append((*paths[parent], node) if parent >= 0 else (node,))
        return paths

    def trace(self, token_ids: abc.Sequence[int]) -> tuple[list[int], list[int]]:
        """What following these tokens from the root tells: the nodes that stand, and all that were put to the test.

        A node is tested when its parent stands and a token is known for its place; in rising order both.
        """
        stood: list[int] = []
        tested: list[int] = []
        depth_behind = {-1: 0}  # where children of what stands go
        for node, parent in enumerate(self.parents):
            depth = depth_behind.get(parent)
            if depth is None or depth >= len(token_ids):
                continue
            tested.append(node)
            if self.token_ids[node] == token_ids[depth] and depth == len(stood):  # of equal siblings the first stands
                stood.append(node)
                depth_behind[node] = depth + 1
        return stood, tested

    def without_ids_from(self, vocab_size: int) -> TokenTree:
        """The tree without tokens that the model does not know, nor anything behind them."""
        if all(0 <= token < vocab_size for token in self.token_ids):
            return self
        known = [all(0 <= self.token_ids[above] < vocab_size for above in path) for path in self.paths()]
        return self.keep([node for node, good in enumerate(known) if good])

    def clamp(self, *, max_nodes: int, max_depth: int) -> TokenTree:
        """The first `max_nodes` nodes among those at most `max_depth` deep (a child of the last token has depth 1)."""
        if len(self) <= max_nodes and len(self) <= max_depth:
            return self
        kept = [node for node, path in enumerate(self.paths()) if len(path) <= max_depth][: max(0, max_nodes)]
        return self.keep(kept)

    def keep(self, nodes: abc.Sequence[int]) -> TokenTree:
        """These nodes, in rising order, with all their ancestors among them."""
        renamed = {node: index for index, node in enumerate(nodes)} | {-1: -1}
        parents = tuple(renamed[self.parents[node]] for node in nodes)
        scores = tuple(self.scores[node] for node in nodes) if self.scores else ()
        laws = tuple(self.laws[node] for node in nodes) if self.laws else ()
        return TokenTree(tuple(self.token_ids[node] for node in nodes), parents, scores, laws)


NO_DRAFT = TokenTree()
