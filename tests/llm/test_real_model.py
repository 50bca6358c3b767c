"""The default model answers sensibly through every door."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp import LLM, SamplingParams

pytestmark = pytest.mark.real_model

GREEDY = SamplingParams(temperature=0, max_tokens=32)
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def llm(default_model_path: Path) -> Iterator[LLM]:
    with LLM(str(default_model_path)) as llm:
        yield llm


def test_a_streamed_sensible_answer(llm: LLM) -> None:
    deltas = list(llm.stream_chat(QUESTION, GREEDY))
    text = "".join(delta.text for delta in deltas)
    assert "Paris" in text
    assert deltas[-1].finish_reason == "stop"
    assert len([delta for delta in deltas if delta.text]) > 3
    assert llm.chat(QUESTION, GREEDY).outputs[0].text == text


def test_a_stop_string(llm: LLM) -> None:
    [choice] = llm.generate("1, 2, 3, 4, 5,", SamplingParams(temperature=0, max_tokens=40, stop=(" 9",)))[0].outputs
    assert (choice.text, choice.finish_reason) == (" 6, 7, 8,", "stop")


def test_a_seed_repeats_and_another_differs(llm: LLM) -> None:
    texts = [
        llm.generate("Once upon a time", SamplingParams(temperature=0.9, seed=seed, max_tokens=20))[0].outputs[0].text
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_a_batch_equals_solo_runs(llm: LLM) -> None:
    prompts = ["The sun is", "Once upon a time there was a little girl who", "def add(a, b):"]
    params = SamplingParams(temperature=0, max_tokens=12)
    batched = [output.outputs[0].token_ids for output in llm.generate(prompts, params)]
    assert batched == [llm.generate(prompt, params)[0].outputs[0].token_ids for prompt in prompts]


def test_the_history_of_a_chat_is_cached(llm: LLM) -> None:
    answer = llm.chat(QUESTION, GREEDY).outputs[0].text
    longer = [*QUESTION, {"role": "assistant", "content": answer}, {"role": "user", "content": "And of Italy?"}]
    output = llm.chat(longer, GREEDY)
    assert "Rome" in output.outputs[0].text
    assert output.report.cached_tokens >= 32


def test_the_command_line_streams_the_same_answer(llm: LLM, default_model_path: Path) -> None:
    args = ["generate", "--chat", "What is the capital of France?", "-m", str(default_model_path), "--max-tokens", "32"]
    done = subprocess.run([sys.executable, "-m", "offramp", *args], capture_output=True, timeout=60, check=True)
    assert done.stdout.decode() == llm.chat(QUESTION, GREEDY).outputs[0].text + "\n"
