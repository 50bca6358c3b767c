"""What trees would bring over chains for a drafter pack: greedy answers replayed with fixed costs, so that only the
shape of drafts differs. Deterministic, and no clock is read.

    python -m benchmarks.draft_trees PACK [--per-task 2] [--tokens 96] [--round 0.5] [--texts answers.jsonl]

Behind every place of an answer the side layer grows a binary tree of four places. Policies see its confidences, turned
into chances by how often such tokens stood, and choose nodes as long as they raise the tokens per millisecond.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.speculation.prompts import read_prompts, spec_bench_folder
from offramp import LLM, SamplingParams
from offramp.core import PAGE_SIZE, Ids, Rows
from offramp.draft.side_model import SideModel
from offramp.llm.drafter_pack import side_model, with_drafter
from offramp.llm.loading import LoadedModel, load_model
from offramp.llm.serving import Serving

DEPTH, WIDTH, BUCKETS = 4, 2, 12
STEP_MS = ((1, 4.7), (2, 5.4), (3, 6.1), (4, 6.3), (6, 9.6), (8, 11.8), (16, 24.9))
"""Rows, and milliseconds of a step of the default model with them, layers and head: its cost table on two cores."""
OVERHEAD_MS = 0.3
WIDER_MS = 0.05
"""Of a further row in a round."""
MOST_TEXTS = 24


@dataclass(frozen=True, slots=True)
class Node:
    """One drafted token of the whole tree behind one place."""

    parent: int
    depth: int  # tokens above it
    chance: float  # that it stands, by what is believed
    stands: bool


Tree = list[Node]
Kept = tuple[list[int], int, int]
"""Nodes that run, rounds of drafting, rows of those."""
Policy = Callable[[Tree, float, float], Kept]
"""(tree, tokens a millisecond, milliseconds of a round) -> what is drafted and run."""


def step_ms(num_rows: int) -> float:
    """Linear between what is known."""
    for (low, low_ms), (high, high_ms) in pairwise(STEP_MS):
        if num_rows <= high:
            return low_ms + (high_ms - low_ms) * (num_rows - low) / (high - low) + OVERHEAD_MS
    raise ValueError(num_rows)


def chain(tree: Tree, speed: float, round_ms: float) -> Kept:
    """The likeliest tokens, one behind the other."""
    return _pruned(tree, *_grown(tree, speed, round_ms, beam=1))


def leaves(tree: Tree, speed: float, round_ms: float) -> Kept:
    """The same, and the second likeliest beside each."""
    grown, rounds, rows = _grown(tree, speed, round_ms, beam=1)
    beside = [node + 1 for node in grown]  # a node's sibling follows it
    return _pruned(tree, sorted([*grown, *beside]), rounds, rows)


def dynamic(tree: Tree, speed: float, round_ms: float) -> Kept:
    """In each round the two likeliest nodes are drafted behind, wherever they are."""
    return _pruned(tree, *_grown(tree, speed, round_ms, beam=2, all_children=True))


def foreseen(tree: Tree, speed: float, round_ms: float) -> Kept:
    """What will stand and nothing else, drafted for nothing: the bound."""
    return [index for index, node in enumerate(tree) if node.stands], 0, 0


def none(tree: Tree, speed: float, round_ms: float) -> Kept:
    return [], 0, 0


POLICIES: dict[str, Policy] = {
    "none": none,
    "chain": chain,
    "chain and leaves": leaves,
    "dynamic tree": dynamic,
    "foreseen": foreseen,
}


def _grown(
    tree: Tree, speed: float, round_ms: float, *, beam: int, all_children: bool = False
) -> tuple[list[int], int, int]:
    """Nodes that were drafted, by rounds that each go on behind at most `beam` of them where that is worth it."""
    row_ms = step_ms(2) - step_ms(1)
    children: dict[int, list[int]] = {}
    for index, each in enumerate(tree):
        children.setdefault(each.parent, []).append(index)
    frontier, grown, rounds, rows = [-1], [], 0, 0
    while frontier:
        worth = [-1] if frontier == [-1] else []
        for place, node in enumerate(sorted((n for n in frontier if n >= 0), key=lambda n: -tree[n].chance)[:beam]):
            price = speed * (row_ms + (WIDER_MS if place else round_ms))
            if node in children and tree[node].chance >= price:
                worth.append(node)
        if not worth:
            break
        rounds, rows = rounds + 1, rows + len(worth)
        frontier = []
        for node in worth:
            new = children[node] if all_children else children[node][:1]
            grown += new
            frontier += new
    return grown, rounds, rows


def _pruned(tree: Tree, nodes: Sequence[int], rounds: int, rows: int) -> Kept:
    """As many of the likeliest as bring the most tokens a millisecond of verification."""
    likeliest = sorted(nodes, key=lambda node: (-tree[node].chance, node))
    expected, best, count = 1.0, 1.0 / step_ms(1), 0
    for index, node in enumerate(likeliest[: STEP_MS[-1][0] - 1], start=1):
        expected += tree[node].chance
        if expected / step_ms(1 + index) > best:
            best, count = expected / step_ms(1 + index), index
    return sorted(likeliest[:count]), rounds, rows


def replay(answers: Sequence[Sequence[Tree]], policy: Policy, round_ms: float) -> tuple[float, float, float]:
    """Tokens a millisecond, rows and tokens of a step; prices are those of the speed reached."""
    speed = 1.0 / step_ms(1)
    for _ in range(4):
        tokens = steps = num_rows = 0
        total = 0.0
        for trees in answers:
            place = 0
            while place < len(trees):
                kept, rounds, rows = policy(trees[place], speed, round_ms)
                stood = sum(trees[place][node].stands for node in kept)
                total += step_ms(1 + len(kept)) + rounds * round_ms + max(0, rows - rounds) * WIDER_MS
                tokens, steps, num_rows = tokens + 1 + stood, steps + 1, num_rows + 1 + len(kept)
                place += 1 + stood
        speed = tokens / total
    return speed, num_rows / steps, tokens / steps


def grow_all(model: SideModel, text: Sequence[int], first: int, states: NDArray[np.float32]) -> list[Seen]:
    """The whole tree behind each of text[first:], a place too early for a draft left out."""
    pages = [np.arange(-(-len(text) // PAGE_SIZE) + WIDTH**DEPTH, dtype=np.int32)]
    places = np.arange(len(text) - 1, dtype=np.int32)
    ids = np.array(text, dtype=np.int32)
    rows = Rows.plain(ids[1:], np.zeros(len(places), np.int32), places, pages)
    behind, _ = model.run_first(rows, states[: len(places)], places)
    grown: list[Seen] = []
    for root in range(first - 1, len(text) - 1):
        hidden = behind.take(np.array([root], dtype=np.int32))
        seen = Seen([], [], [])
        paths: list[list[int]] = [[]]  # slots of the drafted rows above, for each row of `hidden`
        parents = [-1]
        for depth in range(DEPTH):
            top = model.executor.top(hidden, WIDTH, model.head)
            shares = np.exp(top.logits - top.log_sum_exp[:, None])
            begin = len(seen.tokens)
            for index, parent in enumerate(parents):
                seen.tokens += top.ids[index].tolist()
                seen.shares += shares[index].tolist()
                seen.parents += [parent] * WIDTH
            if depth + 1 == DEPTH:
                break
            taken = np.repeat(np.arange(len(parents), dtype=np.int32), WIDTH).astype(np.int32)
            parents = list(range(begin, len(seen.tokens)))
            paths = [paths[index] for index in taken]
            slots = [len(text) + node for node in parents]
            tokens = np.array(seen.tokens[begin:], dtype=np.int32)
            rows = _branches(tokens, root + 1, depth, slots, paths, pages[0])
            hidden, _ = model.run_next(rows, hidden.take(taken))
            paths = [[*path, slot] for path, slot in zip(paths, slots, strict=True)]
        grown.append(seen)
    return grown


@dataclass(slots=True)
class Seen:
    """What the side layer said behind one place: the nodes of a binary tree, level by level."""

    tokens: list[int]
    shares: list[float]
    parents: list[int]


def _branches(
    tokens: Ids, first: int, depth: int, slots: Sequence[int], paths: Sequence[Sequence[int]], pages: Ids
) -> Rows:
    """Rows `depth` places behind `first`, each behind drafted rows of its own."""
    count = len(tokens)
    starts = np.zeros(count + 1, dtype=np.int32)
    np.cumsum([len(path) for path in paths], out=starts[1:])
    return Rows(
        tokens=tokens,
        sequence=np.zeros(count, np.int32),
        positions=np.full(count, first + depth, dtype=np.int32),
        slots=np.array(slots, dtype=np.int32),
        prefix_lens=np.full(count, first, dtype=np.int32),
        ancestor_slots=np.array([slot for path in paths for slot in path], dtype=np.int32),
        ancestor_starts=starts,
        page_ids=pages,
        page_starts=np.array([0, len(pages)], dtype=np.int32),
    )


def states_of(loaded: LoadedModel, taps: Sequence[int], text: Sequence[int]) -> NDArray[np.float32]:
    """[places, taps, hidden] of a plain prefill."""
    pages = [np.arange(-(-len(text) // PAGE_SIZE), dtype=np.int32)]
    places = np.arange(len(text), dtype=np.int32)
    rows = Rows.plain(np.array(text, dtype=np.int32), np.zeros(len(text), np.int32), places, pages)
    hidden, depth, found = loaded.executor.embed(rows), 0, []
    for layer in taps:
        hidden, depth = loaded.executor.run_layers(hidden, rows, depth, layer), layer
        found.append(hidden.numpy())
    return np.ascontiguousarray(np.stack(found, axis=1))


def judged(seen: Seen, text: Sequence[int], place: int, rates: dict[tuple[int, int, int], list[int]]) -> Tree:
    """The tree with what stands; `rates` counts what stood where its parent did, by place, rank and confidence."""
    tree: Tree = []
    for node, (token, share, parent) in enumerate(zip(seen.tokens, seen.shares, seen.parents, strict=True)):
        depth = tree[parent].depth + 1 if parent >= 0 else 0
        tested = parent < 0 or tree[parent].stands
        known = place + depth < len(text)
        stands = tested and known and text[place + depth] == token
        key = min(depth, 2), node % WIDTH, min(BUCKETS - 1, int(share * BUCKETS))
        counts = rates.setdefault(key, [0, 0])
        if tested and known:
            counts[0] += stands
            counts[1] += 1
        tree.append(Node(parent, depth, share, stands))
    return tree


def believed(tree: Tree, seen: Seen, rates: dict[tuple[int, int, int], list[int]]) -> Tree:
    """The same with chances along paths in place of shares."""
    found: Tree = []
    for node, (own, share) in enumerate(zip(tree, seen.shares, strict=True)):
        stood, tested = rates[min(own.depth, 2), node % WIDTH, min(BUCKETS - 1, int(share * BUCKETS))]
        rate = (stood + 8 * share) / (tested + 8)
        above = found[own.parent].chance if own.parent >= 0 else 1.0
        found.append(Node(own.parent, own.depth, rate * above, own.stands))
    return found


def results(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    loaded = with_drafter(load_model(args.model, weights=args.weights, max_context=2048, max_num_seqs=1), args.pack)
    pack = loaded.drafter
    assert pack is not None
    texts = list(_answered(loaded, args) if args.texts is None else _kept(args.texts, args.tokens, args.longest))
    model = side_model(loaded, pack)
    rates: dict[tuple[int, int, int], list[int]] = {}
    raw: list[list[tuple[Tree, Seen]]] = []
    for prompt, answer in texts:
        text, first = [*prompt, *answer], len(prompt) + 1
        grown = grow_all(model, text, first - 1, states_of(loaded, pack.config.taps, text))
        raw.append([(judged(seen, text, first + at, rates), seen) for at, seen in enumerate(grown)])
    for rank in range(WIDTH):
        for place, places in enumerate(("1", "2", "3, 4")):
            of = [counts for (where, which, _), counts in rates.items() if (where, which) == (place, rank)]
            stood, tested = (sum(column) for column in zip(*of, strict=True))
            yield {"result": "rank", "places": places, "rank": rank + 1, "rate": stood / tested, "tested": tested}
    answers = [[believed(tree, seen, rates) for tree, seen in trees] for trees in raw]
    for round_ms in args.round:
        plain, _, _ = replay(answers, none, round_ms)
        for name, policy in POLICIES.items():
            speed, rows, tokens = replay(answers, policy, round_ms)
            facts = {"gain": speed / plain, "rows": rows, "tokens": tokens}
            yield {"result": "policy", "policy": name, "round_ms": round_ms, **facts}


def _answered(loaded: LoadedModel, args: argparse.Namespace) -> Iterator[tuple[list[int], list[int]]]:
    """Prompts and what the model says to them."""
    prompts = [prompt.token_ids[-args.longest :] for prompt in read_prompts(spec_bench_folder(), loaded, args.per_task)]
    with LLM.from_loaded(loaded, Serving(draft="off", drafter=args.pack)) as llm:
        for output in llm.generate(prompts, SamplingParams(temperature=0, max_tokens=args.tokens)):
            yield output.prompt_token_ids, output.outputs[0].token_ids


def _kept(file: Path, count: int, longest: int) -> Iterator[tuple[list[int], list[int]]]:
    """The same from a training's answers: the first ones, with `count` tokens at most each."""
    for line in file.read_text(encoding="utf-8").splitlines()[:MOST_TEXTS]:
        text = json.loads(line)
        if len(text["answer"]) > DEPTH:
            yield text["prompt"][-longest:], text["answer"][:count]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.draft_trees", description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--weights", default="q8")
    parser.add_argument("--per-task", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--longest", type=int, default=400, help="prompt tokens kept, the last ones")
    parser.add_argument("--texts", type=Path, help="a drafter training's answers.jsonl, instead of Spec-Bench")
    parser.add_argument("--round", type=float, nargs="*", default=[0.5], help="milliseconds of a round of drafting")
    for line in results(parser.parse_args()):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
