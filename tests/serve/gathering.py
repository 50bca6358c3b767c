"""A stream's chunks put together as the whole answer would be, so that the two can be compared by ==."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]


def gathered(chunks: Iterable[Mapping[str, Any]]) -> Json:
    """`choices` with whole texts and logprobs, `usage` and `offramp`; each choice must end exactly once."""
    choices: dict[int, Json] = {}
    answer: Json = {}
    for chunk in chunks:
        for name in ("usage", "offramp"):
            if chunk.get(name) is not None:
                assert name not in answer, f"{name} came twice"
                answer[name] = chunk[name]
        for part in chunk["choices"]:
            _add(choices.setdefault(part["index"], _empty(part)), part)
    assert all(choice["finish_reason"] for choice in choices.values()), "a choice has no end"
    return {"choices": [choices[index] for index in sorted(choices)], **answer}


def _empty(part: Mapping[str, Any]) -> Json:
    text: Json = {"text": ""}
    if "delta" in part:
        text = {"message": {"role": "assistant", "content": "", "refusal": None}}
    return {"index": part["index"], **text, "logprobs": None, "finish_reason": None}


def _add(choice: Json, part: Mapping[str, Any]) -> None:
    assert choice["finish_reason"] is None, "a choice goes on behind its end"
    choice["finish_reason"] = part["finish_reason"]
    if "delta" in part:
        choice["message"]["content"] += part["delta"].get("content", "")
    else:
        choice["text"] += part["text"]
    if part["logprobs"] is not None:
        whole = choice["logprobs"]
        choice["logprobs"] = part["logprobs"] if whole is None else _joined(whole, part["logprobs"])


def _joined(whole: Mapping[str, Any], more: Mapping[str, Any]) -> Json:
    return {name: value + more[name] if isinstance(value, list) else value for name, value in whole.items()}


def told(answer: Mapping[str, Any]) -> Json:
    """What must not depend on how an answer was made: its choices, and how many tokens it counts."""
    usage = answer["usage"]
    return {
        "choices": answer["choices"],
        "tokens": (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]),
    }
