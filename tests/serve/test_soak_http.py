"""Every kind of client at once, over HTTP: no 5xx, right answers to who stays, all pages back, no memory kept."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from offramp.llm import LoadedModel
from offramp.llm.serving import Serving
from tests.serve.asking import listening, served
from tests.serve.gathering import told
from tests.serve.loading import Case, Load, cases
from tests.serve.memory import anonymous_bytes

WARM_UP = 600
MOST_BYTES_A_REQUEST = 50_000
START_SECONDS = 60.0
MAX_BODY = 64 << 10
NUM_SEQS, NUM_BATCHED_TOKENS, MAX_DRAFT = 12, 64, 4


async def quiet_answers(client: httpx2.AsyncClient, asked: list[Case]) -> list[tuple[Case, dict[str, Any]]]:
    """What the server says when it has nothing else to do, without drafts."""
    known = []
    for case in asked:
        response = await client.post(case.path, json={**case.body, "offramp": {"draft": "off"}})
        assert response.status_code == 200, response.text
        known.append((case, told(response.json())))
    return known


async def load_on(
    url: str,
    count: int,
    *,
    concurrency: int,
    num_cases: int,
    seconds: float,
    before: Callable[[int], object] = lambda number: None,
) -> tuple[Load, dict[str, float]]:
    """The whole load, within a bound of time, and the server's counters once it has nothing to do any more."""
    limits = httpx2.Limits(max_connections=concurrency)
    async with (
        asyncio.timeout(seconds),
        httpx2.AsyncClient(base_url=url, limits=limits, timeout=60, verify=False) as client,
    ):
        load = Load(client, await quiet_answers(client, cases(num_cases)))
        await load.run(count, concurrency=concurrency, before=before)
        return load, await idle_counters(client)


async def idle_counters(client: httpx2.AsyncClient) -> dict[str, float]:
    while True:
        counters = series((await client.get("/metrics")).text)
        if not any(counters[name] for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")):
            return counters
        await asyncio.sleep(0.01)


def series(text: str) -> dict[str, float]:
    """Counters and gauges by name; those of requests by route and status."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [sample.labels[name] for name in ("route", "status", "finished_reason") if name in sample.labels]
            found[" ".join([sample.name.removeprefix("offramp:"), *labels])] = sample.value
    return found


def check(load: Load, counters: Mapping[str, float], count: int, num_quiet: int) -> None:
    """Nobody was failed, everybody was counted, and drafts took part."""
    assert sum(load.num_sent.values()) == count
    by_status: dict[int, float] = {}
    for name, value in counters.items():
        if name.startswith("http_requests_total /v1/"):
            status = int(name.split()[-1])
            by_status[status] = by_status.get(status, 0) + value
    assert set(by_status) <= {200, 400, 404, 413, 499}
    for status in (400, 404, 413):
        assert by_status.get(status, 0) == load.num_answers[status]
    whole = num_quiet + load.num_answers[200]
    assert whole <= by_status[200] <= whole + load.num_sent["leaves"]
    assert 0 < by_status[499] <= load.num_sent["leaves"]
    assert counters["request_success_total error"] == 0
    assert counters["request_success_total abort"] > 0
    assert 0 < counters["spec_decode_num_accepted_tokens_total"] < counters["spec_decode_num_draft_tokens_total"]


@pytest.mark.usefixtures("quick_costs")
def test_a_small_load_of_all_kinds(toy_model: LoadedModel) -> None:
    serving = Serving(
        draft="off",
        draft_length="fixed",
        max_draft=MAX_DRAFT,
        max_num_seqs=NUM_SEQS,
        max_num_batched_tokens=NUM_BATCHED_TOKENS,
    )
    with served(toy_model, serving, max_body_bytes=MAX_BODY) as api, listening(api.app) as url:
        load, counters = asyncio.run(load_on(url, 150, concurrency=16, num_cases=20, seconds=60))
    check(load, counters, 150, 20)


@contextmanager
def process(model: Path, cache: Path, log: Path) -> Iterator[tuple[str, int]]:
    """`offramp serve` with few pages, its log in a file; gives its address and process, and ends it by a signal."""
    options = ["--max-num-seqs", NUM_SEQS, "--max-num-batched-tokens", NUM_BATCHED_TOKENS, "--max-body", MAX_BODY]
    options += ["--draft-length", "fixed", "--max-draft", MAX_DRAFT, "--kv-memory", "256KiB", "--threads", 1]
    command = [sys.executable, "-m", "offramp", "serve", model, "--port", 0, "--served-model-name", "toy", *options]
    environment = {**os.environ, "OFFRAMP_CACHE": str(cache)}
    with (
        log.open("w") as stderr,
        subprocess.Popen([str(part) for part in command], stderr=stderr, env=environment) as server,
    ):
        try:
            yield _address(server, log), server.pid
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
        finally:
            server.kill()


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        first, complete, _ = log.read_text().partition("\n")
        if complete:
            return first.split()[-1].removesuffix("/v1")
        time.sleep(0.05)
    raise AssertionError(f"the server did not start: {log.read_text()}")


@pytest.mark.slow
def test_soak(toy_path: Path, cache_folder: Path, tmp_path: Path) -> None:
    count, memory, log = 3000, list[int](), tmp_path / "log"
    with process(toy_path, cache_folder, log) as (url, number):
        assert httpx2.get(f"{url}/health", headers={"host": "evil.example"}).status_code == 403

        def before(request: int) -> None:
            if request in (WARM_UP, count - 1):
                memory.append(anonymous_bytes(number))

        load, counters = asyncio.run(load_on(url, count, concurrency=32, num_cases=100, seconds=240, before=before))
    check(load, counters, count, 100)
    assert 0.17 < load.num_sent["leaves"] / count < 0.23
    assert 0.08 < load.num_sent["bad"] / count < 0.12
    assert counters["num_preemptions_total"] > 0
    assert (memory[1] - memory[0]) / (count - WARM_UP) < MOST_BYTES_A_REQUEST
    lines = log.read_text().splitlines()
    wrong = [line for line in lines if line.startswith(("warning", "error", "Traceback"))]
    assert [line for line in wrong if "drafts do not pay" not in line] == []  # drafts of fixed length may not
