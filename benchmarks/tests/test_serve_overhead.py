"""Reading the ids of an answer, and one result a case."""

from __future__ import annotations

import argparse
import json

import pytest

from benchmarks.serve_overhead import Case, Run, read_token_ids, result

TOLD = {
    "offramp": {"tokens": [[{"id": 5, "exit_layer": 3, "draft": False}, {"id": 9, "exit_layer": 3, "draft": True}]]}
}


def test_ids_of_a_whole_answer() -> None:
    assert read_token_ids(json.dumps({"choices": [], **TOLD}).encode(), stream=False) == [5, 9]


def test_ids_of_a_stream() -> None:
    events = [{"choices": [{"text": "a"}]}, {"choices": [{"text": "b"}], **TOLD}]
    stream = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    assert read_token_ids(stream, stream=True) == [5, 9]


def test_a_stream_that_broke_is_no_answer() -> None:
    with pytest.raises(ValueError, match="unpack"):
        read_token_ids(b'data: {"choices": []}\n\ndata: {"error": {"message": "x"}}\n\n', stream=True)


def test_a_server_that_takes_twice_as_long_is_half_as_fast() -> None:
    options = argparse.Namespace(model="m", prompt_len=3, tokens=10, threads=2)
    pairs = [(Run(seconds, []), Run(2 * seconds, [])) for seconds in (1.0, 4.0, 2.0)]
    found = result(Case(4, stream=True), options, pairs)
    assert found["ratio"] == {"median": 0.5, "low": 0.5, "high": 0.5}
    assert (found["engine_tokens_per_s"], found["server_tokens_per_s"], found["rounds"]) == (20.0, 10.0, 3)
