"""Over HTTP, drafts change nothing of an answer: no text, no log-probability, no count; and they are counted truly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import httpx2
import pytest

from offramp import LLM, SamplingParams
from offramp.engine.measure import measure_costs
from offramp.llm import LoadedModel
from offramp.llm import costs as costs_module
from offramp.llm.serving import Serving
from offramp.native import build_executor
from offramp.params import RequestOptions
from offramp.testing.models import chat_tokenizer, loaded_model, says, scripted_model
from offramp.testing.toy import toy_config, toy_source
from tests.serve.asking import CHAT, COMPLETIONS, Api, messages, served
from tests.serve.gathering import Json, gathered, told

SERVING = Serving(draft="off", draft_length="fixed", max_draft=4, draft_memory=0, max_num_batched_tokens=16)
"""So that prompts take several chunks, and nothing is learned from one request for another."""

FAMILY = "\N{MAN}\u200d\N{WOMAN}\u200d\N{GIRL} \u00e9 \u4e16"
OFF: Json = {"draft": "off"}
DRAFTS: Sequence[Json] = ({"draft": "ngram"}, {"draft": "auto"})
REPEATED = "Repeat this sentence for 50 times. "


def toy() -> LoadedModel:
    """A tiny real network with random weights."""
    config = toy_config(num_layers=2, vocab_size=chat_tokenizer().vocab_size)
    return loaded_model(build_executor(toy_source(config, seed=11), kv="f16", num_pages=64, threads=1))


@pytest.fixture(scope="module")
def quick_costs_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Costs are measured roughly, and kept by nobody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFFRAMP_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(
            costs_module, "measure_costs", lambda executor, pages: measure_costs(executor, pages, box_seconds=0.05)
        )
        yield


@pytest.fixture(scope="module")
def api(quick_costs_here: None) -> Iterator[Api]:
    with served(toy(), SERVING) as api:
        yield api


def body(path: str, text: str, **more: object) -> Json:
    """A greedy request of twenty tokens."""
    asked: Json = {"messages": messages(text)} if path == CHAT else {"prompt": text}
    return {**asked, "temperature": 0, "max_tokens": 20, "ignore_eos": True, **more}


def streamed(api: Api, path: str, asked: Json) -> Json:
    return gathered(api.stream(path, **asked, stream_options={"include_usage": True}))


def text_of(path: str, answer: Json, index: int = 0) -> str:
    choice = answer["choices"][index]
    return str(choice["message"]["content"] if path == CHAT else choice["text"])


def check_equal(api: Api, path: str, asked: Json, *, stream: bool = True) -> Json:
    """The answer without drafts, after checking that drafts, and streams, give the same."""
    plain = api.answer(path, **asked, offramp=OFF)
    answers = [api.answer(path, **asked, offramp=options) for options in DRAFTS]
    if stream:
        answers += [streamed(api, path, {**asked, "offramp": options}) for options in (OFF, DRAFTS[0])]
    for answer in answers:
        assert told(answer) == told(plain)
    return plain


@pytest.fixture
def drafts_take_part(api: Api) -> Iterator[None]:
    before = api.worker.statistics.num_accepted_tokens
    yield
    assert api.worker.statistics.num_accepted_tokens > before, "no draft was ever accepted: the test shows nothing"


@pytest.mark.usefixtures("drafts_take_part")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_logprobs_b118(api: Api, path: str) -> None:
    wanted: Json = {"logprobs": True, "top_logprobs": 3} if path == CHAT else {"logprobs": 3}
    plain = check_equal(api, path, body(path, "a b a b a b", **wanted))
    logprobs = plain["choices"][0]["logprobs"]
    values = logprobs["token_logprobs"] if path == COMPLETIONS else [each["logprob"] for each in logprobs["content"]]
    assert len(values) == 20
    assert all(value < 0 for value in values)
    assert len(set(values)) > 1


@pytest.mark.usefixtures("drafts_take_part")
@pytest.mark.parametrize("max_tokens", [1, 12])
def test_logprobs_of_prompts_of_any_length_b120(api: Api, max_tokens: int) -> None:
    for length in (1, 2, 15, 16, 17, 33, 64, 90):
        text = ("hello 12 a " * 20)[:length]
        asked = body(COMPLETIONS, text, echo=True, logprobs=1, max_tokens=max_tokens)
        [choice] = check_equal(api, COMPLETIONS, asked, stream=length == 17)["choices"]
        assert len(choice["logprobs"]["tokens"]) == len(chat_tokenizer().encode(text)) + max_tokens
    if max_tokens == 1:
        check_equal(api, COMPLETIONS, body(COMPLETIONS, "ab" * 9))  # one token alone is never drafted


@pytest.mark.usefixtures("drafts_take_part")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_prompt_logprobs_b120(api: Api, path: str) -> None:
    asked = body(path, "hello 12 " * 6, prompt_logprobs=2)
    plain, *drafted = [api.answer(path, **asked, offramp=options) for options in (OFF, *DRAFTS)]
    for answer in (plain, *drafted):
        entries = answer["prompt_logprobs"] if path == CHAT else answer["choices"][0]["prompt_logprobs"]
        assert len(entries) == answer["usage"]["prompt_tokens"]
        assert entries == (plain["prompt_logprobs"] if path == CHAT else plain["choices"][0]["prompt_logprobs"])


@pytest.mark.usefixtures("drafts_take_part")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_usage_b40(api: Api, path: str) -> None:
    for more in ({"max_tokens": 1}, {"stop": ["a", "e"]}, {"n": 3, "max_tokens": 40}):
        plain = check_equal(api, path, body(path, "12 12 12 12", **more))
        usage = plain["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    chunks = api.stream(path, **body(path, "12 12"), stream_options={"include_usage": True}, offramp=DRAFTS[0])
    assert [chunk["usage"] is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1]["choices"] == []


@pytest.mark.usefixtures("drafts_take_part")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_choices_have_their_index_b22(api: Api, path: str) -> None:
    asked = body(path, "a b a b a b a b", n=3, temperature=0.5, seed=7, max_tokens=40)
    plain = check_equal(api, path, asked)
    assert [choice["index"] for choice in plain["choices"]] == [0, 1, 2]
    assert len({text_of(path, plain, index) for index in range(3)}) == 3


@pytest.mark.usefixtures("drafts_take_part")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_seeded_and_unseeded_requests_mix_b20(api: Api, path: str) -> None:
    loose = body(path, "Write the following phrase 20 times: a b a b a b", temperature=0.1, max_tokens=80)
    seeded = body(path, "How to make pizza", temperature=0.5, seed=2, max_tokens=80)  # some of its drafts stand
    loose["offramp"] = seeded["offramp"] = DRAFTS[0]

    async def together() -> list[Json]:
        transport = httpx2.ASGITransport(app=api.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            responses = await asyncio.gather(*(client.post(path, json=asked) for asked in (loose, seeded) * 2))
        return [response.json() for response in responses]

    first, second, *others = asyncio.run(together())
    alone = api.answer(path, **seeded)
    assert told(second) == told(others[1]) == told(alone)
    for answer in (first, others[0]):
        again = api.answer(path, **loose, seed=answer["offramp"]["seed"])
        assert told(again) == told(answer)
    assert len(set(text_of(path, first))) > 3


@pytest.mark.usefixtures("quick_costs_here")
def test_whole_characters_b37() -> None:
    """Drafts that are always right bring several characters, or parts of some, at once."""
    question = "<|im_start|>user\nfamily<|im_end|>\n<|im_start|>assistant\n"
    script = says((question, FAMILY), ("family:", FAMILY))
    options = {"draft": "reference", "references": [FAMILY]}
    with served(scripted_model(script, num_pages=16), SERVING) as other:
        for path, text in ((CHAT, "family"), (COMPLETIONS, "family:")):
            asked = body(path, text, max_tokens=60, ignore_eos=False)
            for used in (OFF, options, {**options, "max_draft": 2}):
                whole = other.answer(path, **asked, offramp=used)
                chunks = other.stream(path, **asked, offramp=used, stream_options={"include_usage": True})
                assert told(gathered(chunks)) == told(whole)
                assert text_of(path, whole) == FAMILY
                assert "\N{REPLACEMENT CHARACTER}" not in str(chunks)
        assert other.worker.statistics.num_accepted_tokens > 20


def counts(answer: Json) -> tuple[int, list[int], list[int]]:
    """Drafts, and by position in the draft their tokens, and those that stood."""
    report = answer["offramp"]
    return report["num_drafts"], report["num_draft_tokens_per_pos"], report["num_accepted_tokens_per_pos"]


LEARNING = Serving(draft="off", draft_length="fixed", max_num_batched_tokens=16)
"""As above, but outputs are learned from."""

COPIED = "hello 12 a 1 he 2l o ab ba 11 " * 5


@pytest.mark.usefixtures("quick_costs_here")
@pytest.mark.parametrize(
    ("serving", "options", "salts"),
    [
        (SERVING, {"draft": "ngram"}, ("", "")),
        (SERVING, {"draft": "ngram", "max_draft": 16}, ("", "")),
        (SERVING, {"draft": "suffix"}, ("", "")),
        (SERVING, {"draft": "auto", "max_draft": 16}, ("", "")),
        (SERVING, {"draft": "reference", "references": [COPIED]}, ("", "")),
        (SERVING, {"draft": "reference", "references": [COPIED], "max_draft": 16}, ("", "")),
        (LEARNING, {"draft": "suffix"}, ("one", "other")),
        (LEARNING, {"draft": "auto"}, ("one", "other")),
        (LEARNING, {"draft": "ngram"}, ("", "")),
    ],
)
def test_an_earlier_unrelated_request_changes_no_count_of_a_later_one_b52(
    serving: Serving, options: Json, salts: tuple[str, str]
) -> None:
    """With lengths that learn nothing, and under another salt where outputs are kept."""
    long = body(COMPLETIONS, "hello 12 12 " * 20, max_tokens=100, offramp=options, cache_salt=salts[0])
    short = body(COMPLETIONS, "a b a b a b", max_tokens=60, offramp=options, cache_salt=salts[1])
    if "references" in options:
        with served(toy(), serving) as fresh:
            plain = fresh.answer(COMPLETIONS, **{**short, "offramp": OFF})
        options["references"] = [COPIED, text_of(COMPLETIONS, plain)]
    found = []
    for before in ([], [long] * 3):
        with served(toy(), serving) as fresh:
            for asked in before:
                fresh.answer(COMPLETIONS, **asked)
            if before:
                assert fresh.worker.statistics.num_draft_tokens > 20
            found.append(fresh.answer(COMPLETIONS, **short))
    one, other = found
    assert told(one) == told(other)
    assert counts(one) == counts(other)
    assert sum(counts(one)[2]) > 0


@pytest.mark.usefixtures("quick_costs_here")
@pytest.mark.parametrize(
    ("path", "draft", "stream"),
    [(CHAT, "ngram", False), (COMPLETIONS, "ngram", True), (CHAT, "suffix", True), (COMPLETIONS, "suffix", False)],
)
def test_a_server_drafts_as_much_as_the_library_b127(path: str, draft: str, stream: bool) -> None:
    asked = body(path, REPEATED * 2, max_tokens=80, offramp={"draft": draft, "max_draft": 3})
    with served(toy(), SERVING) as fresh:
        answer = streamed(fresh, path, asked) if stream else fresh.answer(path, **asked)
    params = SamplingParams(temperature=0, max_tokens=80, ignore_eos=True)
    options = RequestOptions(draft=draft, max_draft=3)
    with LLM.from_loaded(toy(), SERVING) as llm:
        if path == CHAT:
            output = llm.chat(messages(REPEATED * 2), params, options)
        else:
            [output] = llm.generate(REPEATED * 2, params, options)
    report = output.report
    expected = report.num_drafts, list(report.num_draft_tokens_per_pos), list(report.num_accepted_tokens_per_pos)
    assert counts(answer) == expected
    assert text_of(path, answer) == output.outputs[0].text
    assert report.num_drafts > 5
