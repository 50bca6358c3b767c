"""Which methods there are, what each is given, and what is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.bench.run.method import BUILT_IN, Method, exactness, methods_of
from offramp.errors import InvalidRequestError
from offramp.llm.model_flags import ModelFlags


@pytest.fixture
def base(tmp_path: Path) -> ModelFlags:
    """A run with every pack there is."""
    packs = {name: str(tmp_path) for name in ("exits", "drafter")}
    return ModelFlags(weights="q8", threads=1, risk=0.05, exit_threshold="0.9", draft_model="little", **packs)


def by_name(texts: list[str], base: ModelFlags) -> dict[str, Method]:
    return {method.name: method for method in methods_of(texts, base)}


def test_plain_is_always_there_once_and_first() -> None:
    for texts in ([], ["ngram"], ["ngram", "plain"], ["plain", "ngram"]):
        names = [method.name for method in methods_of(texts, ModelFlags())]
        assert names[0] == "plain"
        assert names.count("plain") == 1


def test_every_built_in_method_can_be_made(base: ModelFlags) -> None:
    assert list(by_name(list(BUILT_IN), base)) == list(BUILT_IN)


def test_all_share_the_runs_weights_and_take_only_the_packs_that_they_use(base: ModelFlags) -> None:
    made = by_name(list(BUILT_IN), base)
    assert {method.flags.weights for method in made.values()} == {"q8"}
    used = {name: {pack for pack in ("exits", "drafter", "draft_model") if method.options.get(pack)}
            for name, method in made.items()}  # fmt: skip
    assert used == {
        "plain": set(),
        "auto": {"exits", "drafter", "draft_model"},
        "ngram": set(),
        "suffix": set(),
        "eagle": {"drafter"},
        "early_exit": {"exits"},
        "model": {"draft_model"},
        "calibrated": {"exits"},
        "unchecked": {"exits"},
        "full": set(),
    }
    assert [name for name, method in made.items() if method.flags.risk] == ["calibrated"]
    assert [name for name, method in made.items() if method.flags.exit_threshold] == ["unchecked"]


def test_options_of_ones_own() -> None:
    base = ModelFlags(max_draft=8)
    made = by_name(["both:draft=ngram,suffix,max-draft=4,draft-memory=0", "ngram:draft_length=fixed", "f:kv=f32"], base)
    assert made["both"].flags == ModelFlags(draft="ngram,suffix", max_draft=4, draft_memory="0")
    assert made["ngram"].flags == ModelFlags(draft="ngram", max_draft=8, draft_length="fixed")
    assert made["f"].flags == ModelFlags(kv="f32", max_draft=8)
    assert made["both"].options == {"draft": "ngram,suffix", "max_draft": 4, "draft_memory": "0"}


def test_a_little_model_that_writes_takes_no_exits(base: ModelFlags) -> None:
    made = by_name(["little:mode=unchecked,little_rollback=3"], base)
    assert made["little"].flags.draft_model == "little"
    assert made["little"].flags.exits is None


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        (["nose"], "there is no method 'nose'", "ngram"),
        (["ngram", "ngram"], "two methods are called 'ngram'", ""),
        (["plain:draft=ngram"], "method plain takes no options", "other:draft=ngram"),
        (["a:draft"], "'draft' is no option", "mine:draft=ngram"),
        (["a:max_draft=1,max-draft=2"], "is no option", ""),
        (["a:speed=9"], "method a: there is no option 'speed'", "draft"),
        (["a:max_draft=many"], "method a: max_draft='many' is impossible", "integer"),
        (["a:draft=nose"], "method a: draft='nose'", "known drafters"),
        (["a:load=demand"], "method a: load is for servers", ""),
        (["a b\tc"], "no name for a method", ""),
        ([":draft=ngram"], "no name for a method", ""),
        (["eagle"], "method eagle: draft='eagle' needs a drafter pack", "drafter"),
        (["early_exit"], "method early_exit: draft='early_exit' needs an exit pack", ""),
        (["calibrated"], "method calibrated: mode='calibrated' needs an exit pack", ""),
        (["x:exits=/nowhere"], "method x: exits='/nowhere' is no folder", ""),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(texts: list[str], message: str, hint: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        methods_of(texts, ModelFlags())
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_exactness_says_what_is_promised(base: ModelFlags) -> None:
    made = by_name([*BUILT_IN, "chance:draft=ngram,verifier=rejection", "q4:draft=off,weights=q4"], base)
    plain = made["plain"].flags
    said = {name: exactness(method.flags, plain) for name, method in made.items()}
    assert said == {
        **dict.fromkeys(("plain", "auto", "ngram", "suffix", "eagle", "early_exit", "model"), "lossless"),
        "calibrated": "calibrated, risk 0.05",
        "unchecked": "unchecked",
        "full": "full",
        "chance": "lossless in distribution",
        "q4": "lossless, of weights q4 and K/V f16",
    }
    assert exactness(made["q4"].flags) == "lossless"
