"""JSON lines between the session and a worker, one reply a request. Standard library only: every peer imports it.

    {"op": "load", "model": path, "weights": name, "threads": n}   -> facts about the peer (version, build flags, ...)
    {"op": "warm", "case": {...}}                                  -> {} after one unmeasured run; a peer with variants
                                                                      (flash attention on, off) picks its fastest here
    {"op": "run", "case": {...}}                                   -> timings

A case is {"kind": "generate", "prompts": [[ids]], "new_tokens": n}: greedy, end tokens ignored, all prompts at once;
or {"kind": "rows", "prompt": [ids], "rows": n, "repeats": r}: n tokens of one sequence in one call after the prompt,
logits for all of them. Or {"kind": "lookup", "prompt": [ids], "new_tokens": n, "eos": [ids], "lookup": k, "context":
c}: greedy up to an end token, drafting k tokens at a time by prompt lookup (0: plain), in room for c tokens. An error
is a reply {"error": text}; the worker lives on.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, Protocol

Json = dict[str, Any]


class Peer(Protocol):
    """What a worker offers."""

    def load(self, model: str, weights: str, threads: int) -> Json: ...
    def warm(self, case: Json) -> Json: ...
    def run(self, case: Json) -> Json: ...


def serve(peer: Peer) -> None:
    """Answer requests until standard input ends. Whatever the peer prints goes to standard error."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = _answer(peer, json.loads(line))
        except Exception as error:  # a peer may raise anything, and the session must know what
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _answer(peer: Peer, request: Json) -> Json:
    match request["op"]:
        case "load":
            return peer.load(request["model"], request["weights"], request["threads"])
        case "warm":
            return peer.warm(request["case"])
        case "run":
            return peer.run(request["case"])
        case other:
            raise ValueError(f"unknown op {other!r}")


def generated(started: float, stamps: list[list[float]], tokens: list[list[int]], new_tokens: int) -> Json:
    """The reply to a "generate" case, from the time of each token of each stream.

    `first` is when every stream has its first token; the tokens that come after it are `decoded`, the last of them at
    `total`. So decoding alone is `decoded / (total - first)`, end to end is `total`. Seconds from the start.
    """
    for stream in tokens:
        if len(stream) != new_tokens:
            raise RuntimeError(f"{len(stream)} tokens came where {new_tokens} were asked for")
    first = max(stream[0] for stream in stamps)
    total = max(stream[-1] for stream in stamps)
    decoded = sum(stamp > first for stream in stamps for stamp in stream)
    return {"first": first - started, "total": total - started, "decoded": decoded, "tokens": tokens}


def answered(started: float, stamps: list[float], tokens: list[int]) -> Json:
    """The reply to a "lookup" case: as that of `generated`, for one stream of any length."""
    if not tokens or len(tokens) != len(stamps):
        raise RuntimeError(f"{len(tokens)} tokens came at {len(stamps)} times")
    first, total = stamps[0], stamps[-1]
    decoded = sum(stamp > first for stamp in stamps)
    return {"first": first - started, "total": total - started, "decoded": decoded, "tokens": tokens}
