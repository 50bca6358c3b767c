"""Routes with a risk: refused over models that run otherwise than the router's certificate says, and what it covers."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive

from offramp.collaborate.router.pack import RouterPack
from offramp.collaborate.router.pack_file import write_router
from offramp.errors import InvalidRequestError
from offramp.llm.loading import LoadedModel
from offramp.llm.running_of import model_running
from offramp.serve.hosted import Live
from tests.serve.asking import CHAT, COMPLETIONS, messages
from tests.serve.piping import GREEDY, RECORDED, SURE, UNSURE, big_model, length_router, piping, route, said

BIG_HASH = "cd" * 32


def known_big() -> LoadedModel:
    return replace(big_model(), source_hash=BIG_HASH)


@pytest.fixture
def routed(tmp_path: Path) -> Path:
    """Prompts of more than three tokens are for the big model."""
    write_router(tmp_path / "router", length_router(at=3))
    return tmp_path


def as_it_is(pack: RouterPack) -> RouterPack:
    return pack


def over_other(**changes: Any) -> Callable[[RouterPack], RouterPack]:
    """A pack that was trained over a model that ran otherwise."""

    def changed(pack: RouterPack) -> RouterPack:
        running = {name: value for name, value in changes.items() if name != "prompt_tokens"}
        own = {name: value for name, value in changes.items() if name == "prompt_tokens"}
        config = replace(pack.config, running=replace(pack.config.running, **running), **own)
        return replace(pack, config=config)

    return changed


def beside_other(big_model: str = "", **changes: Any) -> Callable[[RouterPack], RouterPack]:
    """A pack that was certified with a big model that is another one, or ran otherwise."""

    def changed(pack: RouterPack) -> RouterPack:
        big = replace(model_running(known_big()), **changes)
        answers = replace(RECORDED, big_model=big_model or BIG_HASH, big=big)
        return replace(pack, config=replace(pack.config, answers=answers))

    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (over_other(weights="q8 30"), "weights of the little model is 'f32', it was trained with 'q8 30'"),
        (over_other(kv="f16"), "kv of the little model is 'f32'"),
        (over_other(config="other"), "config of the little model"),
        (over_other(template="other"), "template of the little model"),
        (over_other(prompt_tokens=100), "the number of tokens that count of a prompt is .*, it was trained with 100"),
        (beside_other(kv="f16"), "kv of the big model is 'f32'"),
        (beside_other(weights="q4 2"), "weights of the big model is 'f32'"),
        (beside_other(template="other"), "template of the big model"),
        (beside_other(big_model="ef" * 32), "the big model's tensor hash"),
        (beside_other(), None),
        (as_it_is, None),
    ],
)
def test_a_routers_certificate_is_for_models_as_they_ran(
    change: Callable[[RouterPack], RouterPack], message: str | None, tmp_path: Path
) -> None:
    write_router(tmp_path / "router", change(length_router(at=3)))
    with piping(route(big_share=0.5), folder=tmp_path, big=known_big) as api:
        api.models.load_at_start()
        api.pipelines.check()
        assert [said(api, prompt)[0] for prompt in (SURE, UNSURE)] == ["one", "two"], "a share is no promise"
    with piping(route(risk=0.1), folder=tmp_path, big=known_big) as api:
        answers = [api.post(COMPLETIONS, {**GREEDY, "prompt": prompt}) for prompt in (SURE, UNSURE)]
        if message is None:
            assert [each.json()["choices"][0]["text"] for each in answers] == ["one", "two"]
            api.pipelines.check()
            return
        told = answers[-1].json()["error"]["message"]
        assert answers[-1].status_code == 400
        assert re.search(f"certificate does not fit: {message}", told), told
        with pytest.raises(InvalidRequestError, match=f"pipeline 'smart': .*{message}"):
            api.pipelines.check()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"stop": ["x"]}, "stop was not part"),
        ({"stop_token_ids": [5]}, "stop_token_ids was not part"),
        ({"temperature": 0.5, "seed": 1}, "temperature=0.5 differs from the calibration's 0"),
        ({"max_tokens": 9}, "max_tokens=9 is above the calibration's 8"),
        ({"structured_outputs": {"choice": ["two"]}}, "structured_outputs were not part"),
    ],
)
def test_what_a_routers_certificate_does_not_cover_goes_to_the_big_model(
    body: dict[str, Any], reason: str, routed: Path
) -> None:
    with piping(route(risk=0.1), folder=routed) as api:
        facts = said(api, SURE, **body)[1]
        assert facts["answered_by"] == "big"
        assert facts["reason"].startswith(reason)
        assert api.pipeline("smart").watch.achieved is None, "nothing that the score decided"
        assert said(api, SURE)[1]["answered_by"] == "little"
    with piping(route(threshold=0.5), folder=routed) as api:
        facts = said(api, SURE, **body)[1]
        assert (facts["answered_by"], facts["reason"]) == ("little", None), "a threshold promises nothing"


@pytest.mark.parametrize("chat", [True, False])
def test_a_routers_certificate_is_for_prompts_as_it_read_them(chat: bool, tmp_path: Path) -> None:
    pack = length_router(at=30)  # nothing here is as long
    write_router(tmp_path / "router", replace(pack, config=replace(pack.config, chat=chat)))
    with piping(route(risk=0.1), folder=tmp_path) as api:
        answers = {
            True: api.answer(CHAT, **GREEDY, messages=messages(SURE)),
            False: api.answer(COMPLETIONS, **GREEDY, prompt=SURE),
        }
        facts = {form: answer["offramp"]["pipeline"] for form, answer in answers.items()}
        assert (facts[chat]["answered_by"], facts[chat]["reason"]) == ("little", None)
        assert facts[not chat]["answered_by"] == "big"
        assert "the chat template was not part" in facts[not chat]["reason"]


@pytest.mark.parametrize(
    ("promise", "names"), [({"big_share": 0.5}, ["small", "large"]), ({"risk": 0.1}, ["small", "large", "large"])]
)
def test_only_for_a_promise_the_big_model_is_looked_at_beforehand(
    promise: dict[str, float], names: list[str], routed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with piping(route(**promise), folder=routed) as api:
        held, taken = api.models.held, []

        def noted(name: str, receive: Receive) -> AbstractAsyncContextManager[Live]:
            taken.append(name)
            return held(name, receive)

        monkeypatch.setattr(api.models, "held", noted)
        assert said(api, UNSURE)[0] == "two"
        assert taken == names
