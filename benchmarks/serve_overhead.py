"""What the server takes: its tokens/s beside those of the same engine called in process, greedy, without drafts.

Some clients send one request each at the same time; in process the same prompts are one call of `generate`. Rounds
alternate between the two, new prompts each round, and every answer's token ids must be equal. Clients run in this
process and only collect bytes while the clock runs; on few cores they still share the CPU with the server. Idle threads
of either side sleep. Bound by the engine's steps, then by what JSON, HTTP and event loops take of each token.

    python -m benchmarks.serve_overhead --model smollm2-135m
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from urllib.parse import urlsplit

import numpy as np

from benchmarks.machine import load
from benchmarks.ratios import paired_ratio
from benchmarks.session import Json, note, ratio_json
from offramp import LLM, SamplingParams
from offramp.bench.provenance import provenance

TARGET = 0.9
"""Of the engine's tokens/s, for the server."""

START_SECONDS = 120.0
MAX_NUM_SEQS = 16

Prompts = list[list[int]]
TokenIds = list[list[int]]


@dataclass(frozen=True, slots=True)
class Case:
    """So many clients at once, which read streams or whole answers."""

    clients: int
    stream: bool

    @property
    def name(self) -> str:
        return f"{self.clients} {'streaming' if self.stream else 'waiting'}"


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds for all answers, and their ids."""

    seconds: float
    token_ids: TokenIds


class InProcess:
    """The engine, called from Python."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._llm = LLM(options.model, threads=options.threads, draft="off", max_num_seqs=MAX_NUM_SEQS)
        self._params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=options.tokens)
        self.vocab_size = self._llm.model.config.vocab_size

    def run(self, prompts: Prompts) -> Run:
        begin = time.perf_counter()
        outputs = self._llm.generate(prompts, self._params)
        return Run(time.perf_counter() - begin, [output.outputs[0].token_ids for output in outputs])


class Served:
    """A server in a process of its own, and its clients in this one."""

    def __init__(self, base: str, options: argparse.Namespace) -> None:
        address = urlsplit(base)
        self._host, self._path = address.netloc, f"{address.path}/completions"
        self._model = options.model
        self._tokens = options.tokens

    def run(self, prompts: Prompts, *, stream: bool) -> Run:
        seconds, answers = asyncio.run(self._ask_all([self._body(prompt, stream) for prompt in prompts]))
        return Run(seconds, [read_token_ids(answer, stream=stream) for answer in answers])

    def _body(self, prompt: list[int], stream: bool) -> Json:
        return {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": self._tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": stream,
            "offramp": {"report": "tokens"},
        }

    async def _ask_all(self, bodies: list[Json]) -> tuple[float, list[bytes]]:
        begin = time.perf_counter()
        answers = await asyncio.gather(*map(self._ask, bodies))
        return time.perf_counter() - begin, [read_body(answer) for answer in answers]

    async def _ask(self, body: Json) -> bytes:
        """One request on a connection of its own, and all bytes of its answer: a client takes little of the CPU."""
        sent = json.dumps(body).encode()
        head = f"POST {self._path} HTTP/1.1\r\nHost: {self._host}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
        reader, writer = await asyncio.open_connection(*self._host.rsplit(":", 1))
        writer.write(head.encode() + sent)
        answer = await reader.read()
        writer.close()
        return answer


def read_body(answer: bytes) -> bytes:
    """The body of a whole HTTP/1.1 answer, which must be 200; its chunks are put together."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), answer
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    parts = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        parts.append(rest[: int(size, 16)])
        body = rest[int(size, 16) + 2 :]
    return b"".join(parts)


def read_token_ids(answer: bytes, *, stream: bool) -> list[int]:
    """The ids that an answer's report names; a stream's report comes with one of its last chunks."""
    if stream:
        events = [line.removeprefix(b"data: ") for line in answer.splitlines() if line.startswith(b"data: {")]
        [told] = [event["offramp"] for event in map(json.loads, events) if "offramp" in event]
    else:
        told = json.loads(answer)["offramp"]
    [tokens] = told["tokens"]
    return [token["id"] for token in tokens]


@contextmanager
def running_server(options: argparse.Namespace) -> Iterator[str]:
    """A server of the same model on a free port; its address."""
    command = [sys.executable, "-m", "offramp", "serve", options.model, "--port", "0", "--draft", "off"]
    command += ["--max-num-seqs", str(MAX_NUM_SEQS)]
    command += ["--threads", str(options.threads)] if options.threads else []
    with tempfile.TemporaryFile("w+b") as told:
        process = subprocess.Popen(command, stderr=told)
        try:
            yield _address(process, told.fileno())
        finally:
            process.terminate()
            process.wait(60)


def _address(process: subprocess.Popen[bytes], told: int) -> str:
    """What the server names on stderr when it is ready."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        text = os.pread(told, 65536, 0).decode()
        found = re.search(r"serves .* at (\S+)", text)
        if found:
            return found[1]
        time.sleep(0.02)
    raise SystemExit(f"the server did not start: {os.pread(told, 65536, 0).decode()}")


def measure(options: argparse.Namespace, cases: list[Case]) -> Iterator[Json]:
    """One result a case."""
    engine = InProcess(options)
    draw = np.random.default_rng(options.seed)

    def prompts(clients: int) -> Prompts:
        return [list(map(int, ids)) for ids in draw.integers(3, engine.vocab_size, (clients, options.prompt_len))]

    with running_server(options) as base:
        server = Served(base, options)
        for case in cases:
            pairs = [
                _round(engine, server, prompts(case.clients), case, number) for number in range(options.rounds + 1)
            ]
            yield result(case, options, pairs[1:])  # the first one warms up


def _round(engine: InProcess, server: Served, prompts: Prompts, case: Case, number: int) -> tuple[Run, Run]:
    """Both sides on the same prompts; who begins alternates."""
    if number % 2:
        theirs = server.run(prompts, stream=case.stream)
        ours = engine.run(prompts)
    else:
        ours = engine.run(prompts)
        theirs = server.run(prompts, stream=case.stream)
    assert ours.token_ids == theirs.token_ids, "the server's tokens differ from the engine's"
    return ours, theirs


def result(case: Case, options: argparse.Namespace, pairs: list[tuple[Run, Run]]) -> Json:
    engine, server = [run.seconds for run, _ in pairs], [run.seconds for _, run in pairs]
    ratio = paired_ratio(engine, server)
    num_tokens = case.clients * options.tokens
    note(f"{case.name}: {ratio.median:.3f} of the engine's tokens/s [{ratio.low:.3f}, {ratio.high:.3f}]")
    return {
        "benchmark": "serve_overhead",
        "model": options.model,
        "clients": case.clients,
        "stream": case.stream,
        "prompt_len": options.prompt_len,
        "tokens": options.tokens,
        "threads": options.threads,
        "engine_tokens_per_s": round(num_tokens / median(engine), 2),
        "server_tokens_per_s": round(num_tokens / median(server), 2),
        "ratio": ratio_json(ratio),
        "target": TARGET,
        "engine_seconds": [round(seconds, 5) for seconds in engine],
        "server_seconds": [round(seconds, 5) for seconds in server],
        "rounds": len(pairs),
        "load": load(),
        **provenance(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--clients", default="1,4,16", help="numbers of clients, separated by commas")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--prompt-len", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts = [int(count) for count in options.clients.split(",")]
    for result in measure(options, [Case(count, stream) for count in counts for stream in (True, False)]):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
