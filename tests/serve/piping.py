"""Pipelines over scripted models: one that is sure of some answers and not of others, and one that says two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

from offramp.collaborate.cascade.calibration import CascadeCalibration, write_cascade
from offramp.collaborate.pipeline.spec import read_pipelines
from offramp.collaborate.router.certificate import RecordedAnswers
from offramp.collaborate.router.embed import most_tokens
from offramp.collaborate.router.linear import LinearRouter
from offramp.collaborate.router.pack import RouterPack
from offramp.collaborate.router.pack_config import RouterConfig
from offramp.collaborate.router.standard import Standard
from offramp.collaborate.threshold import CertifiedThreshold, ThresholdCalibration
from offramp.exits.certificate import SamplingSettings
from offramp.llm.loading import LoadedModel
from offramp.llm.running_of import model_running
from offramp.llm.serving import Serving
from offramp.serve.app import make_app
from offramp.serve.models import Models
from offramp.serve.pipelines import Pipeline, Pipelines, load_pipeline
from offramp.serve.remote import Remote
from offramp.serve.settings import ServerSettings
from offramp.testing.models import END_OF_TURN, chat_tokenizer, says, scripted_model
from offramp.testing.scripted import LENGTH, Script
from tests.serve.asking import COMPLETIONS, Api
from tests.serve.hosting import PLAIN, Scripted, hosting

HASH = "ab" * 32
GREEDY: dict[str, object] = {"model": "smart", "temperature": 0, "max_tokens": 8}
SURE, UNSURE = "hello", "12 12 12"
"""Prompts; the little model's logits are sharp behind the first one alone."""
UNSURE_NEED = 1 - (1 - np.exp(-0.5))
"""By mean, of tokens whose logits are 0.5 apart around the vocabulary."""


def chat_prompt(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def exchanges(answer: str) -> list[tuple[str, str]]:
    return [(form, answer) for text in (SURE, UNSURE) for form in (text, chat_prompt(text))]


def sharp_behind(script: Script, prompts: Sequence[str]) -> Script:
    """The same answers, of which those to these prompts are certain."""
    starts = [tuple(chat_tokenizer().encode(prompt)) for prompt in prompts]

    def sharpened(history: tuple[int, ...], depth: int) -> NDArray[np.float32]:
        sure = any(history[: len(start)] == start for start in starts)
        return script(history, depth) * np.float32(40 if sure else 1)

    return sharpened


def little_model() -> LoadedModel:
    script = sharp_behind(says(*exchanges("one")), [SURE, chat_prompt(SURE)])
    return replace(scripted_model(script), source_hash=HASH)


def big_model() -> LoadedModel:
    return scripted_model(says(*exchanges("two"), end=END_OF_TURN))


RECORDED = RecordedAnswers(sampling=SamplingSettings(), max_tokens=8)
"""Greedy ones, that a length router is certified for."""


def length_router(at: float) -> RouterPack:
    """Over texts to the little model, its score passes 1/2 where they have more than `at` tokens.

    Certified for risk 0.1 at 1/2.
    """
    little = little_model()
    hidden_size = little.config.hidden_size
    features = 2 * hidden_size
    weights = np.zeros(features, np.float32)
    weights[LENGTH] = 1.0
    standard = Standard(np.zeros(features, np.float32), np.ones(features, np.float32))
    certified = CertifiedThreshold(
        risk=0.1, delta=0.05, threshold=0.5, big_share=0.25, num_prompts=100, mean_loss=0.01, p_value=0.01
    )
    config = RouterConfig(
        model=HASH,
        model_name="little",
        num_layers=little.config.num_layers,
        hidden_size=hidden_size,
        depth=1,
        running=model_running(little),
        prompt_tokens=most_tokens(little.config),
        chat=False,
        kind="linear",
        models=("little", "big"),
        little="little",
        big="big",
        num_prompts=4,
        certified=(certified,),
        answers=RECORDED,
    )
    calibration = ThresholdCalibration(scores=np.array([0.1, 0.2, 0.3, 0.9]), certified=(certified,))
    return RouterPack(config=config, router=LinearRouter(standard, weights, -at), calibration=calibration)


class PipeApi(Api):
    """An application with pipelines."""

    def __init__(self, models: Models, pipelines: Pipelines, runner: asyncio.Runner) -> None:
        self.app = make_app(models, ServerSettings(), pipelines)
        self.models = models
        self.pipelines = pipelines
        self._runner = runner

    def pipeline(self, name: str) -> Pipeline:
        found = self.pipelines.find(name)
        assert found is not None
        return found


@contextmanager
def piping(
    content: dict[str, object],
    *,
    folder: Path = Path(),
    endpoint: Callable[[httpx2.Request], httpx2.Response] | None = None,
    little: Callable[[], LoadedModel] = little_model,
    big: Callable[[], LoadedModel] = big_model,
    serving: Serving = PLAIN,
    with_big: bool = True,
) -> Iterator[PipeApi]:
    """Pipelines as a file has them, over `small` and `large`; `endpoint` answers what is asked elsewhere.

    `serving` is how the little model serves.
    """
    models = [Scripted("small", make=little, serving=serving)] + [Scripted("large", make=big)] * with_big
    pipelines = [load_pipeline(spec) for spec in read_pipelines(content, folder)]
    for each in pipelines:
        if endpoint is not None and not isinstance(each.spec.big, str):
            each.remote = Remote(each.spec.big, transport=httpx2.MockTransport(endpoint), sleep=no_time)
    runner = asyncio.Runner()
    try:
        with hosting(*models) as hosted:
            yield PipeApi(hosted, Pipelines(pipelines, hosted), runner)
    finally:
        runner.close()


async def no_time(seconds: float) -> None:
    pass


def cascade(**options: Any) -> dict[str, object]:
    return {"smart": {"little": "small", "big": "large", "policy": "cascade", **options}}


def route(**options: Any) -> dict[str, object]:
    return {"smart": {"little": "small", "big": "large", "policy": "route", "router": "router", **options}}


def elsewhere(policy: dict[str, Any] | None = None, **options: Any) -> dict[str, object]:
    big = {"url": "http://127.0.0.1:9/v1", "model": "huge", **options}
    return {"smart": {"little": "small", "big": big, "policy": "cascade", **(policy or {"threshold": 0.5})}}


class Endpoint:
    """Answers in turn; the last answer stays."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def good() -> httpx2.Response:
    body = {"model": "huge", "choices": [{"index": 0, "text": "far", "finish_reason": "stop"}], "usage": {}}
    return httpx2.Response(200, json=body)


def said(api: PipeApi, prompt: str, **body: object) -> tuple[str, dict[str, Any]]:
    """The text, and what is told of the pipeline."""
    answer = api.answer(COMPLETIONS, **{**GREEDY, "prompt": prompt, **body})
    return answer["choices"][0]["text"], answer["offramp"]["pipeline"]


def series(api: PipeApi, name: str, **labels: str) -> list[float]:
    families = text_string_to_metric_families(api.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples if sample.name == f"offramp:{name}"]
    return [each.value for each in samples if labels.items() <= each.labels.items()]


def certified(tmp_path: Path, **changes: Any) -> Path:
    entry = CertifiedThreshold(
        risk=0.1, delta=0.05, threshold=0.5, big_share=0.5, num_prompts=100, mean_loss=0.01, p_value=0.01
    )
    values: dict[str, Any] = {"model": HASH, "score": "mean", "sampling": SamplingSettings(), "max_tokens": 16}
    thresholds = ThresholdCalibration(scores=np.array([0.1, 0.2, 0.6, 0.7]), certified=(entry,))
    path = tmp_path / "cascade.json"
    write_cascade(path, CascadeCalibration(**{**values, "thresholds": thresholds, **changes}))
    return path
