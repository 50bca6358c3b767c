"""`offramp bench serve` against a server that answers as the test says."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.fake_server import DONE, Answer, FakeServer, refusal, text_chunk, usage_chunk


def reply(body: dict[str, Any]) -> Answer:
    """Three tokens in two chunks; the second request of ten is refused, the third breaks."""
    if body.get("prompt") == "two":
        return refusal(429, "busy")
    if body.get("prompt") == "three":
        return Answer([text_chunk("a")], complete=False)
    return Answer([0.002, text_chunk("a"), 0.002, text_chunk("b", "length"), usage_chunk(5, 3), DONE])


def metrics(drafts: int) -> bytes:
    names = {"drafts": drafts, "draft_tokens": 4 * drafts, "accepted_tokens": 3 * drafts}
    lines = [f'offramp:spec_decode_num_{name}_total{{model_name="m"}} {count}' for name, count in names.items()]
    position = f'offramp:spec_decode_num_accepted_tokens_per_pos_total{{model_name="m",position="0"}} {drafts}'
    return "\n".join([*lines, position, ""]).encode()


@pytest.fixture
def server() -> Iterator[FakeServer]:
    models = json.dumps({"object": "list", "data": [{"id": "first"}, {"id": "second"}]}).encode()
    with FakeServer(reply, pages={"/v1/models": [models], "/metrics": [metrics(10), metrics(30)]}) as running:
        yield running


def lines_of(path: Path, *prompts: str) -> str:
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return str(path)


def test_a_load(offramp: Callable[..., Any], server: FakeServer, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = offramp(
        *("bench", "serve", "--base-url", f"{server.base}/v1", "--num-prompts", "6", "--max-concurrency", "2"),
        *("--random-input-len", "4", "--random-output-len", "3", "--ignore-eos", "--extra-body", '{"top_k": 1}'),
        *("--request-rate", "500", "--seed", "1", "--json", str(out)),
    )
    assert (done.code, len(done.err.splitlines())) == (0, 1), done.err
    assert "Answered requests:                       6\n" in done.out
    assert "Acceptance rate (%):                     75.00\n" in done.out
    result = json.loads(out.read_text())
    assert (result["benchmark"], result["model"], result["request_rate"], result["seed"]) == ("serve", "first", 500, 1)
    assert (result["completed"], result["failed"], result["total_output_tokens"]) == (6, 0, 18)
    assert (result["input_lens"], result["output_lens"]) == ([5] * 6, [3] * 6)
    assert (result["spec_decode_num_drafts"], result["spec_decode_acceptance_length"]) == (20, 4.0)
    assert result["max_concurrent_requests"] <= 2
    assert all(0 < ttft < 5 for ttft in result["ttfts"])
    assert {"cpu", "measured_at", "offramp"} <= set(result)
    assert len(server.bodies) == 6
    assert {(body["path"], body["top_k"], body["max_tokens"]) for body in server.bodies} == {
        ("/v1/chat/completions", 1, 3)
    }
    assert len({body["messages"][0]["content"] for body in server.bodies}) == 6


def test_errors_are_counted_and_named(offramp: Callable[..., Any], server: FakeServer, tmp_path: Path) -> None:
    path, out = lines_of(tmp_path / "in.jsonl", "one", "two", "three", "four"), tmp_path / "out.json"
    args = ("--endpoint", "completions", "--dataset", "jsonl", "--dataset-path", path, "--max-concurrency", "1")
    done = offramp("bench", "serve", "--base-url", server.base, "-m", "m", *args, "--json", str(out))
    assert done.code == 0
    assert "HTTP 429:                                1\n" in done.out
    assert "disconnected:                            1\n" in done.out
    result = json.loads(out.read_text())
    assert (result["completed"], result["failed"], result["total_output_tokens"]) == (2, 2, 6)
    assert result["error_counts"] == {"HTTP 429": 1, "disconnected": 1}
    assert result["errors"][0] == result["errors"][3] == ""
    assert result["errors"][1] == "HTTP 429: busy"
    assert [body["prompt"] for body in server.bodies] == ["one", "two", "three", "four"]


def test_no_answer_at_all_is_a_failure(offramp: Callable[..., Any], server: FakeServer, tmp_path: Path) -> None:
    path = lines_of(tmp_path / "in.jsonl", "two")
    args = ("--endpoint", "completions", "--dataset", "jsonl", "--dataset-path", path)
    done = offramp("bench", "serve", "--base-url", server.base, *args)
    assert done.code == 1
    assert "Failed requests:                         1\n" in done.out
    assert "no request was answered (HTTP 429: busy)" in done.err


def test_the_duration_is_limited(offramp: Callable[..., Any]) -> None:
    with FakeServer(lambda body: Answer([text_chunk("a"), 30.0])) as slow:
        args = ("--num-prompts", "3", "--max-concurrency", "2", "--duration-limit", "0.2")
        done = offramp("bench", "serve", "--base-url", slow.base, "-m", "m", *args)
    assert done.code == 1
    assert "Requests cut off at the end:             2\n" in done.out
    assert "Requests not sent:                       1\n" in done.out
    assert "note: 2 requests cut off (duration limit)" in done.err


def test_ctrl_c_shows_what_was_measured(tmp_path: Path) -> None:
    def half(body: dict[str, Any]) -> Answer:
        last = "four" in str(body["messages"])
        return Answer([text_chunk("a"), 30.0]) if last else reply(body)

    out = tmp_path / "out.json"
    path = lines_of(tmp_path / "in.jsonl", "one", "five", "four")
    with FakeServer(half) as server:
        args = ["--base-url", server.base, "-m", "m", "--dataset", "jsonl", "--dataset-path", path, "--json", str(out)]
        command = [sys.executable, "-m", "offramp", "bench", "serve", "--max-concurrency", "1", *args]
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            while len(server.bodies) < 3 and running.poll() is None:
                time.sleep(0.005)
            running.send_signal(signal.SIGINT)
            shown, told = running.communicate(timeout=30)
        finally:
            running.kill()
    assert running.returncode == 130, told
    assert "Answered requests:                       2\n" in shown
    result = json.loads(out.read_text())
    assert (result["completed"], result["cut_off"], result["ended_by"]) == (2, 1, "interrupt")


def test_a_key_comes_from_the_environment(
    offramp: Callable[..., Any], server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-777")
    done = offramp("bench", "serve", "--base-url", server.base, "--num-prompts", "1", "--json", str(out))
    assert done.code == 0
    assert all("Bearer sk-777" in head for head in server.headers)
    assert "sk-777" not in done.out + done.err + out.read_text()


@pytest.mark.parametrize("key", ["sk\n7", "schlüssel"])
def test_a_broken_key_is_refused_unseen(
    offramp: Callable[..., Any], server: FakeServer, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    done = offramp("bench", "serve", "--base-url", server.base, "--num-prompts", "1")
    assert (done.code, key in done.err) == (2, False)
    assert "OPENAI_API_KEY" in done.err


def test_a_server_without_models(offramp: Callable[..., Any]) -> None:
    with FakeServer(reply, pages={"/v1/models": [b'{"data": []}']}) as empty:
        done = offramp("bench", "serve", "--base-url", empty.base)
        assert (done.code, "names no model" in done.err) == (1, True)
    done = offramp("bench", "serve", "--base-url", empty.base)
    assert (done.code, "is the server up?" in done.err) == (1, True)
    assert "connection refused" in done.err
    done = offramp("bench", "serve", "--base-url", empty.base, "-m", "m", "--num-prompts", "1")
    assert (done.code, "connection refused" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (["--base-url", "http:" + "//models.example"], "not this machine"),
        (["--endpoint", "responses"], "--endpoint"),
        (["--dataset", "sonnet"], "--dataset"),
        (["--dataset", "jsonl"], "--dataset-path"),
        (["--dataset-path", "x"], "--dataset"),
        (["--num-prompts", "0"], "--num-prompts"),
        (["--num-prompts", "100001"], "--num-prompts"),
        (["--random-input-len", "0"], "--random-input-len"),
        (["--random-input-len", "1000000"], "--random-input-len"),
        (["--random-output-len", "0"], "--random-output-len"),
        (["--request-rate", "0"], "--request-rate"),
        (["--request-rate", "nan"], "--request-rate"),
        (["--max-concurrency", "0"], "--max-concurrency"),
        (["--duration-limit", "inf"], "--duration-limit"),
        (["--seed", "-1"], "--seed"),
        (["--temperature", "nan"], "--temperature"),
        (["--extra-body", "{"], "--extra-body"),
        (["--extra-body", '{"stream": false}'], "stream"),
        (["--json", "nowhere/out.json"], "no such folder"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_sent(
    offramp: Callable[..., Any], args: list[str], match: str
) -> None:
    done = offramp("bench", "serve", *args)
    assert done.code == 2
    assert match in done.err


def test_infinity_is_written_as_json(offramp: Callable[..., Any], server: FakeServer, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    offramp("bench", "serve", "--base-url", server.base, "--num-prompts", "1", "--json", str(out))
    result = json.loads(out.read_text())
    assert result["request_rate"] == "inf"
    assert not any(isinstance(value, float) and math.isinf(value) for value in result.values())
