"""What a server's settings and a request's own say make of its drafts."""

from __future__ import annotations

from typing import Any

import pytest

from offramp.core import DraftParams, RequestOptions
from offramp.errors import InvalidRequestError
from offramp.llm.exit_settings import ExitSettings
from offramp.llm.serving import Serving
from offramp.params import MAX_REFERENCE_TOKENS
from offramp.testing.models import chat_tokenizer

TOKENIZER = chat_tokenizer()
OFF = DraftParams(drafter="off")
PACK = ExitSettings(pack="tests", risk=0.05)


def drafting(serving: Serving, **options: Any) -> DraftParams:
    return serving.drafting(RequestOptions(**options), TOKENIZER)


@pytest.mark.parametrize(
    ("serving", "options", "wanted"),
    [
        ({}, {}, DraftParams(drafter="auto")),
        ({"draft": "off"}, {}, OFF),
        ({}, {"draft": "suffix"}, DraftParams(drafter="suffix")),
        ({"draft": "ngram"}, {}, DraftParams(drafter="ngram")),
        ({"draft": "ngram"}, {"draft": " suffix , ngram "}, DraftParams(drafter="suffix,ngram")),
        ({"draft": "ngram"}, {"draft": "off"}, OFF),
        ({"draft": "ngram"}, {"mode": "full"}, OFF),
        ({"draft": "ngram"}, {"max_draft": 0}, OFF),
        ({"draft": "ngram", "max_draft": 5}, {}, DraftParams(drafter="ngram", max_draft=5)),
        ({"draft": "ngram", "max_draft": 5}, {"max_draft": 9}, DraftParams(drafter="ngram", max_draft=5)),
        ({"draft": "ngram", "max_draft": 5}, {"max_draft": 2}, DraftParams(drafter="ngram", max_draft=2)),
        ({"max_draft": 0}, {}, OFF),
        ({"max_draft": 0}, {"max_draft": 5}, OFF),
        ({"mode": "calibrated", "exits": PACK}, {}, OFF),
        ({"mode": "calibrated", "exits": PACK}, {"mode": "lossless"}, DraftParams(drafter="auto")),
        ({"mode": "full"}, {"mode": "lossless", "max_draft": 3}, DraftParams(drafter="auto", max_draft=3)),
        ({"mode": "full", "draft": "off"}, {"mode": "lossless"}, OFF),
        ({"max_draft": 0}, {"draft": "off"}, OFF),
        ({"draft": "reference"}, {}, DraftParams(drafter="reference")),
        ({"draft": "ngram,reference"}, {"max_draft": 2}, DraftParams(drafter="ngram,reference", max_draft=2)),
        ({}, {"draft": "off", "references": ["", ""]}, OFF),
        ({"mode": "full"}, {"mode": "lossless", "draft": "ngram"}, DraftParams(drafter="ngram")),
    ],
)
def test_a_request_gets_what_both_allow(serving: dict[str, Any], options: dict[str, Any], wanted: DraftParams) -> None:
    assert drafting(Serving(**serving), **options) == wanted
    assert Serving(**serving).drafting(None, TOKENIZER) == drafting(Serving(**serving))


def test_full_mode_refuses_drafts_that_were_asked_for() -> None:
    for serving, options in (("full", {"draft": "ngram"}), ("lossless", {"mode": "full", "draft": "ngram"})):
        with pytest.raises(InvalidRequestError, match="mode full runs no drafts"):
            drafting(Serving(mode=serving), **options)


@pytest.mark.parametrize("draft", ["reference", "auto", "ngram,reference"])
def test_references_become_ids_for_who_reads_them(draft: str) -> None:
    references = drafting(Serving(draft=draft), references=["ab", "", "c"]).references
    assert [text.tolist() for text in references] == [TOKENIZER.encode("ab"), TOKENIZER.encode("c")]


def test_references_are_bounded_all_together() -> None:
    half = "x" * (MAX_REFERENCE_TOKENS // 2)
    drafting(Serving(draft="auto"), references=[half, half])
    with pytest.raises(InvalidRequestError, match="references='65537 tokens'") as caught:
        drafting(Serving(draft="auto"), references=[half, half, "x"])
    assert caught.value.param == "references"
    assert "65536 tokens in all" in caught.value.hint


def test_no_memory_for_learned_texts_is_none() -> None:
    assert [Serving(draft_memory=size).store_bytes() for size in (0, "0", 1 << 20, "1MiB")] == [0, 0, 1 << 20, 1 << 20]


@pytest.mark.parametrize(("draft", "refused"), [("ngram", True), ("ngram,suffix", True), ("ngram,reference", False)])
def test_references_that_the_named_drafters_cannot_read_are_refused(draft: str, refused: bool) -> None:
    options = RequestOptions(draft=draft, references=("some text",))
    if not refused:
        assert len(Serving().drafting(options, TOKENIZER).references) == 1
        return
    with pytest.raises(InvalidRequestError, match=r"^references: ") as caught:
        Serving().drafting(options, TOKENIZER)
    assert caught.value.param == "references"
    assert "auto" in caught.value.hint


@pytest.mark.parametrize(
    ("serving", "options", "why", "advice"),
    [
        ({}, {"draft": "off"}, "drafts are off", "auto, reference"),
        ({}, {"max_draft": 0}, "drafts are off by max_draft=0", "leave max_draft unset"),
        ({}, {"mode": "full"}, "mode full runs no drafts", "lossless"),
        ({}, {"draft": "suffix"}, "draft='suffix' reads none", "auto, reference"),
        ({"mode": "full"}, {}, "mode full runs no drafts", "lossless"),
        ({"draft": "off"}, {}, "drafts are off", "auto, reference"),
        ({"max_draft": 0}, {}, "drafts are off: the engine was started with max_draft=0", "a larger max_draft"),
        ({"draft": "ngram,suffix"}, {}, "draft='ngram,suffix' reads none", "auto, reference"),
    ],
)
def test_references_that_nobody_would_read_are_refused_unread(
    serving: dict[str, Any], options: dict[str, Any], why: str, advice: str
) -> None:
    with pytest.raises(InvalidRequestError, match=f"(?m)^references: {why}$") as caught:
        drafting(Serving(**serving), references=["ab" * MAX_REFERENCE_TOKENS], **options)
    assert caught.value.param == "references"
    assert advice in caught.value.hint
    assert ("set draft" in caught.value.hint) == (advice == "auto, reference"), "no drafter where each is refused"


def test_a_request_gets_the_verifier_that_it_names_or_the_engines() -> None:
    assert drafting(Serving()).verifier == "exact"
    assert drafting(Serving(verifier="rejection")).verifier == "rejection"
    assert drafting(Serving(verifier="rejection"), verifier="exact").verifier == "exact"
    assert drafting(Serving(), verifier="rejection").verifier == "rejection"
    assert drafting(Serving(verifier="rejection"), draft="off") == OFF, "nothing is drafted, and nothing judged"


@pytest.mark.parametrize(
    ("serving", "options"),
    [({"draft": "off"}, {}), ({}, {"draft": "off"}), ({}, {"mode": "full"}), ({"max_draft": 0}, {})],
)
def test_a_verifier_with_nothing_to_judge_is_refused(serving: dict[str, Any], options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="verifier='rejection': nothing is drafted") as caught:
        drafting(Serving(**serving), verifier="rejection", **options)
    assert caught.value.param == "verifier"


def test_unknown_verifiers_are_refused_by_name() -> None:
    for ask in (lambda: Serving(verifier="typical"), lambda: drafting(Serving(), verifier="typical")):
        with pytest.raises(InvalidRequestError, match="verifier='typical'") as caught:
            ask()
        assert "rejection" in caught.value.hint


@pytest.mark.parametrize("draft", ["ngram", "auto"])
def test_drafters_beside_a_bound_of_none_are_refused(draft: str) -> None:
    for ask in (lambda: Serving(draft=draft, max_draft=0), lambda: drafting(Serving(), draft=draft, max_draft=0)):
        with pytest.raises(InvalidRequestError, match=f"draft='{draft}' beside max_draft=0") as caught:
            ask()
        assert caught.value.param == "draft"


@pytest.mark.parametrize("draft", ["reference", "ngram,reference"])
@pytest.mark.parametrize("references", [[], [""]])
def test_a_reader_that_was_named_without_a_text_is_refused(draft: str, references: list[str]) -> None:
    """Where the server names one, requests may bring a text or not."""
    with pytest.raises(InvalidRequestError, match="there is no reference to copy from") as caught:
        drafting(Serving(), draft=draft, references=references)
    assert caught.value.param == "draft"
    assert drafting(Serving(draft=draft), references=references).references == ()


@pytest.mark.parametrize("draft", ["auto", "ngram", "reference"])
def test_an_engine_without_room_for_drafts_refuses_those_that_are_asked_for(draft: str) -> None:
    with pytest.raises(InvalidRequestError, match="started with max_draft=0, which runs no drafts") as caught:
        drafting(Serving(max_draft=0), draft=draft, references=["a"])
    assert caught.value.param == "draft"


def test_texts_beyond_all_bounds_are_refused_unread() -> None:
    with pytest.raises(InvalidRequestError, match="references='1048577 characters'"):
        Serving().drafting(RequestOptions(references=("x" * 1048577,)), TOKENIZER)


def test_a_reference_that_is_no_text_is_blamed_by_name() -> None:
    with pytest.raises(InvalidRequestError, match=r"^references: ") as caught:
        Serving().drafting(RequestOptions(references=("\ud800",)), TOKENIZER)
    assert caught.value.param == "references"
