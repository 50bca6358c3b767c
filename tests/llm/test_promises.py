"""Which promise each request gets, and which ones are refused by name."""

from __future__ import annotations

import json
import logging
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offramp import LLM, InvalidRequestError, RequestOptions, SamplingParams
from offramp.errors import CorruptModelError
from offramp.exits.certificate import FILE_NAME, SamplingSettings, write_calibration
from offramp.exits.frozen import FrozenPolicy
from offramp.exits.pack_file import read_pack
from offramp.llm.exits import read_entries
from offramp.llm.loading import LoadedModel, load_model, with_exits
from offramp.llm.promises import Kept, Promises, calibrate_command, circumstances
from offramp.llm.serving import Serving
from offramp.model.checkpoint import open_checkpoint
from offramp.model.config import LongRopeScaling, RopeConfig
from offramp.native.converting import convert
from offramp.testing.checkpoints import role_values, write_gguf
from offramp.testing.models import chat_tokenizer, tokenizer_metadata
from offramp.testing.toy import toy_config, toy_source
from tests.llm.exiting import DEPTH, certified, entry, serving, toy_pack, with_pack

GREEDY = SamplingParams(temperature=0, max_tokens=32)


@pytest.fixture
def pack(tmp_path: Path, toy_path: Path) -> Path:
    return toy_pack(tmp_path / "mine", toy_path)


@pytest.fixture
def loaded(toy_path: Path, pack: Path, own_cache: Path) -> LoadedModel:
    return certified(toy_path, pack, 0.02, 0.1, ignore_eos=False)


def kept(loaded: LoadedModel, pack: Path, params: SamplingParams = GREEDY, **options: Any) -> Kept:
    settings = serving(pack)
    return Promises(loaded, settings).keep(settings.execution(RequestOptions(**options), chat_tokenizer()), params)


def test_a_certificate_is_told_in_a_line(toy_path: Path, pack: Path, own_cache: Path) -> None:
    loaded = certified(toy_path, pack, 0.02, 0.1)
    assert Promises(loaded, serving(pack, "unchecked", threshold=0.5)).certificate() is None
    told = Promises(loaded, serving(pack, "calibrated", risk=0.05)).certificate()
    assert told == (
        "mode calibrated: risk 0.02 at 2.5 of 4 layers a token for temperature=0, ignore_eos=1 and max_tokens up to 64"
        "; other requests run all layers"
    )
    slow = entry(loaded, 0.05, gain=0.9)
    write_calibration(pack / FILE_NAME, [slow], {})
    told = Promises(with_pack(toy_path, pack), serving(pack, "calibrated", risk=0.05)).certificate()
    assert told is not None
    assert "all layers run" in told


@pytest.mark.parametrize(("asked", "certified_risk"), [(0.02, 0.02), (0.05, 0.02), (0.1, 0.1), (0.9, 0.1)])
def test_the_fastest_policy_within_the_risk_is_taken(
    loaded: LoadedModel, pack: Path, asked: float, certified_risk: float
) -> None:
    chosen = kept(loaded, pack, mode="calibrated", risk=asked, exits="mine")
    assert (chosen.mode, chosen.risk, chosen.reason, chosen.pack) == ("calibrated", certified_risk, None, "mine")
    assert chosen.exits.policy == f"calibrated:{certified_risk:g}"
    assert chosen.exits.policy in Promises(loaded, serving(pack)).policies(lambda: 0)


@pytest.mark.parametrize("mode", ["lossless", "full"])
def test_other_modes_have_no_policy(loaded: LoadedModel, pack: Path, mode: str) -> None:
    assert kept(loaded, pack, mode=mode) == kept(loaded, pack, mode=mode, risk=None) == Kept(mode=mode)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"temperature": 0.7, "max_tokens": 32}, "temperature=0.7 differs from the calibration's 0"),
        ({"temperature": 0, "max_tokens": 65}, "max_tokens=65 is above the calibration's 64"),
        ({"temperature": 0, "max_tokens": None}, "max_tokens=the rest of the context is above the calibration's 64"),
        ({"temperature": 0, "max_tokens": 9, "logit_bias": {5: 1}}, "logit_bias was not part of the calibration"),
    ],
)
def test_what_the_certificate_does_not_cover_runs_all_layers_and_says_why(
    loaded: LoadedModel, pack: Path, params: dict[str, Any], reason: str
) -> None:
    chosen = kept(loaded, pack, SamplingParams(**params), mode="calibrated", risk=0.1)
    assert chosen == Kept(mode="full", reason=reason)


def test_entries_for_other_settings_are_no_hindrance(loaded: LoadedModel, toy_path: Path, pack: Path) -> None:
    sampled = entry(loaded, 0.1, gain=9.0, sampling=SamplingSettings(temperature=0.5))
    write_calibration(pack / FILE_NAME, [sampled, entry(loaded, 0.1)], {})
    both = with_pack(toy_path, pack)
    assert kept(both, pack, mode="calibrated", risk=0.1).exits.policy == "calibrated:0.1:1"
    warm = SamplingParams(temperature=0.5, max_tokens=5)
    assert kept(both, pack, warm, mode="calibrated", risk=0.1).exits.policy == "calibrated:0.1"


def test_where_full_depth_is_faster_it_runs(loaded: LoadedModel, toy_path: Path, pack: Path) -> None:
    write_calibration(pack / FILE_NAME, [entry(loaded, gain=0.97)], {})
    chosen = kept(with_pack(toy_path, pack), pack, mode="calibrated", risk=0.05)
    assert chosen == Kept(mode="full", reason="no certified policy is faster than full depth")


@pytest.mark.parametrize(
    ("options", "param", "message"),
    [
        ({"mode": "calibrated"}, "risk", "needs a risk"),
        ({"mode": "calibrated", "risk": 0.01}, "risk", "risk=0.01 is not certified"),
        ({"risk": 0.1}, "risk", "risk=0.1: mode lossless takes none"),
        ({"mode": "full", "risk": 0.1}, "risk", "risk=0.1: mode full takes none"),
        ({"mode": "unchecked"}, "mode", "mode='unchecked': no thresholds were set"),
        ({"exits": "mine"}, "exits", "exits='mine': mode lossless runs all layers"),
        ({"mode": "calibrated", "risk": 0.1, "exits": "yours"}, "exits", "there is no exit pack 'yours'"),
        ({"mode": "calibrated", "risk": 0.1, "draft": "ngram"}, "draft", "mode calibrated runs no drafts"),
        ({"mode": "unchecked", "draft": "auto"}, "draft", "mode unchecked runs no drafts"),
        ({"mode": "calibrated", "risk": 0.1, "draft": "early_exit"}, "draft", "'early_exit': mode calibrated runs no"),
        ({"mode": "unchecked", "draft": "early_exit"}, "draft", "'early_exit': mode unchecked runs no drafts"),
        ({"mode": "unchecked", "draft": "model"}, "draft", "'model': mode unchecked runs no drafts"),
    ],
)
def test_what_a_request_cannot_have_is_refused_by_name(
    loaded: LoadedModel, pack: Path, options: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        kept(loaded, pack, **options)
    assert caught.value.param == param
    assert caught.value.hint


def test_a_risk_that_nothing_keeps_is_refused_at_the_start(loaded: LoadedModel, pack: Path) -> None:
    for mode in ("calibrated", "lossless"):
        with pytest.raises(InvalidRequestError, match=r"risk=0\.01 is not certified"):
            LLM.from_loaded(loaded, serving(pack, mode, risk=0.01))


@pytest.mark.parametrize("mode", ["lossless", "full", "calibrated"])
def test_the_log_tells_of_a_pack_that_the_mode_does_not_use(
    loaded: LoadedModel, pack: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    risk = {"risk": 0.1} if mode == "calibrated" else {}
    with caplog.at_level(logging.INFO, logger="offramp"):
        Promises(loaded, serving(pack, mode, **risk)).policies(lambda: 0)
    told = [record.message for record in caplog.records if "exits are for requests that ask for" in record.message]
    assert len(told) == (mode != "calibrated")


def test_a_shipped_pack_is_found_by_its_name(
    toy_path: Path, pack: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.model.shipped.PACKS", tmp_path / "packs")
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "exits").symlink_to(pack.parent)
    monkeypatch.chdir("/")
    with LLM(str(toy_path), threads=1, exits="mine", exit_threshold=0.0, mode="unchecked") as llm:
        assert llm.generate("a", GREEDY)[0].report.exits == "mine"
    with pytest.raises(InvalidRequestError, match="exits='yours' is no folder"):
        LLM(str(toy_path), threads=1, exits="yours")


def test_a_draft_of_off_asks_for_nothing(loaded: LoadedModel, pack: Path) -> None:
    assert kept(loaded, pack, mode="calibrated", risk=0.1, draft="off").mode == "calibrated"


def test_a_stock_model_refuses_with_a_hint_b76(toy_path: Path, own_cache: Path) -> None:
    with LLM(str(toy_path), threads=1) as llm:
        for mode in ("calibrated", "unchecked"):
            with pytest.raises(InvalidRequestError, match=f"mode='{mode}': no exit pack is loaded") as caught:
                llm.generate("a", GREEDY, RequestOptions(mode=mode))
            assert "offramp train exits" in caught.value.hint
        with pytest.raises(InvalidRequestError, match="no exit pack 'p'"):
            llm.generate("a", GREEDY, RequestOptions(mode="calibrated", exits="p"))


def test_a_pack_without_calibration_says_how_to_make_one(toy_path: Path, pack: Path, own_cache: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"mode='calibrated': the pack mine has no calibration") as caught:
        LLM(str(toy_path), threads=1, exits=pack, mode="calibrated", risk=0.05)
    assert caught.value.hint == f"offramp calibrate {toy_path} --exits {pack} --prompts FILE --risk 0.05"
    with pytest.raises(InvalidRequestError, match="no calibration"):
        LLM(str(toy_path), threads=1, exits=pack, risk=0.05)
    with LLM(str(toy_path), threads=1, exits=pack) as llm, pytest.raises(InvalidRequestError, match="no calibration"):
        llm.generate("a", GREEDY, RequestOptions(mode="calibrated", risk=0.05))


@pytest.mark.parametrize(
    ("field", "options"),
    [("weights", {"weights": "f32"}), ("kv", {"kv": "f32"}), ("batching", {"exit_batching": "barrier"})],
)
def test_a_calibration_of_another_engine_is_refused_by_field(
    loaded: LoadedModel,
    toy_path: Path,
    pack: Path,
    field: str,
    options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    misfit = rf"the calibration does not fit: {field} is"
    with pytest.raises(InvalidRequestError, match=rf"mode='calibrated': {misfit}"):
        LLM(str(toy_path), threads=1, exits=pack, mode="calibrated", risk=0.1, **options)
    with caplog.at_level(logging.WARNING), LLM(str(toy_path), threads=1, exits=pack, **options) as llm:
        assert misfit in caplog.text
        with pytest.raises(InvalidRequestError, match=misfit):
            llm.generate("a", GREEDY, RequestOptions(mode="calibrated", risk=0.1))
        assert llm.generate("a", GREEDY)[0].report.mode == "lossless"


def test_a_calibration_is_one_of_what_runs_whatever_it_was_asked_for_as(
    loaded: LoadedModel, toy_path: Path, pack: Path, tmp_path: Path
) -> None:
    """`auto` keeps this model in q8, and so does a folder that was converted."""
    checkpoint = open_checkpoint(toy_path)
    for fmt in ("auto", "q8"):
        convert(checkpoint, checkpoint.weights(fmt), tmp_path / fmt, source="toy", tell=lambda count: None)
    for model, weights in ((toy_path, "q8"), (tmp_path / "auto", "auto"), (tmp_path / "q8", "auto")):
        alike = with_exits(load_model(model, weights=weights, threads=1), pack)
        assert alike.source_hash == loaded.source_hash
        assert circumstances(alike, "compact") == circumstances(loaded, "compact")
        assert kept(alike, pack, mode="calibrated", risk=0.1).mode == "calibrated"
    assert circumstances(loaded, "compact").weights == "q8 29"
    other = with_exits(load_model(toy_path, weights="q4", threads=1), pack)
    with pytest.raises(InvalidRequestError, match="weights is 'q4 28, q8 1', it was measured with 'q8 29'"):
        kept(other, pack, mode="calibrated", risk=0.1)


def test_a_calibration_is_one_of_the_config(loaded: LoadedModel, tmp_path: Path) -> None:
    """Equal tensors compute other things where positions rotate otherwise."""

    def held(name: str, rope: RopeConfig, family: str = "llama", max_context: int | None = None) -> LoadedModel:
        metadata = tokenizer_metadata()
        size = len(metadata["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
        config = toy_config(family=family, vocab_size=size, max_context=256, rope=rope)
        weights = role_values(toy_source(config, seed=3))
        model = load_model(
            write_gguf(tmp_path / name, config, weights, metadata=metadata), max_context=max_context, threads=1
        )
        return replace(model, exits=loaded.exits)

    plain, edited = (held(f"{base}.gguf", RopeConfig(base=base, rotary_dim=16)) for base in (1e4, 1e6))
    assert plain.source_hash == edited.source_hash
    made = replace(entry(loaded), circumstances=circumstances(plain, "compact"))
    made.check_fits(circumstances(plain, "compact"))
    with pytest.raises(InvalidRequestError, match="does not fit: config is"):
        made.check_fits(circumstances(edited, "compact"))

    scaling = LongRopeScaling(
        short_divisors=(1.0,) * 8, long_divisors=(4.0,) * 8, original_context=64, attention_factor=1.5, context=256
    )
    long = RopeConfig(rotary_dim=16, scaling=scaling)
    whole, longer, short = (held("phi.gguf", long, "phi3", context) for context in (None, 65, 64))
    assert circumstances(whole, "compact") == circumstances(longer, "compact") != circumstances(short, "compact")
    assert loaded.exits is not None
    assert calibrate_command(short, loaded.exits, 0.1).endswith(" --risk 0.1 --max-context 64")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": "q4"}, ["--risk", "0.3", "--weights", "q4"]),
        ({"kv": "f32"}, ["--risk", "0.3", "--kv", "f32"]),
        ({"weights": "f32", "kv": "f32"}, ["--risk", "0.3", "--weights", "f32", "--kv", "f32"]),
    ],
)
def test_the_hint_calibrates_this_engine_at_the_risk_that_was_asked_for(
    loaded: LoadedModel, toy_path: Path, tmp_path: Path, pack: Path, options: dict[str, str], words: list[str]
) -> None:
    spaced = pack.rename(tmp_path / "my pack")
    with pytest.raises(InvalidRequestError) as caught:
        LLM(str(toy_path), threads=1, exits=spaced, mode="calibrated", risk=0.3, **options)  # type: ignore[arg-type]
    command = ["offramp", "calibrate", str(toy_path), "--exits", str(spaced), "--prompts", "FILE"]
    assert shlex.split(caught.value.hint) == command + words


def test_a_shipped_pack_is_copied_before_it_is_calibrated(
    toy_path: Path, pack: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.model.shipped.PACKS", pack.parent.parent)
    with pytest.raises(InvalidRequestError) as caught:
        LLM(str(toy_path), threads=1, exits=pack, mode="calibrated", risk=0.2)
    command = f"offramp calibrate {toy_path} --exits my-mine --prompts FILE --risk 0.2"
    assert caught.value.hint == f"cp -r {pack} my-mine && {command}"


def test_where_only_the_batching_differs_the_hint_is_the_calibrations(
    loaded: LoadedModel, toy_path: Path, pack: Path
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        LLM(str(toy_path), threads=1, exits=pack, mode="calibrated", risk=0.1, exit_batching="barrier")
    assert caught.value.hint.startswith("start with exit_batching=compact")


def test_batching_is_the_calibrations_unless_another_is_asked_for(
    loaded: LoadedModel, toy_path: Path, pack: Path
) -> None:
    assert Promises(loaded, serving(pack)).batching == "compact"
    write_calibration(pack / FILE_NAME, [entry(loaded, batching="barrier")], {})
    barrier = with_pack(toy_path, pack)
    assert Promises(barrier, serving(pack, "calibrated", risk=0.05)).batching == "barrier"
    assert Promises(barrier, serving(pack, batching="compact")).batching == "compact"


def test_a_pack_of_another_model_is_refused(toy_path: Path, pack: Path, own_cache: Path) -> None:
    config = json.loads((pack / "config.json").read_text())
    (pack / "config.json").write_text(json.dumps({**config, "model": "0" * 64}))
    with pytest.raises(InvalidRequestError, match=r"belongs to toy with the tensor hash 0{64}") as caught:
        LLM(str(toy_path), threads=1, exits=pack, mode="full")
    assert caught.value.param == "exits"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (FrozenPolicy(layers=(1, 3), thresholds=(0.5, 0.5), measure="margin"), "exits after layer 3"),
        (
            FrozenPolicy(
                layers=(1,), thresholds=(0.5,), measure="margin", predictor="pack", predictor_thresholds=(0.5,)
            ),
            "uses the pack's predictors",
        ),
    ],
)
def test_a_calibration_that_contradicts_its_pack_certifies_nothing(
    toy_path: Path, tmp_path: Path, own_cache: Path, policy: FrozenPolicy, message: str
) -> None:
    folder = toy_pack(tmp_path / "two", toy_path, layers=(1, 2))
    write_calibration(folder / FILE_NAME, [entry(with_pack(toy_path, folder), policy=policy)], {})
    loaded = with_pack(toy_path, folder)
    with pytest.raises(InvalidRequestError, match=f"mode='calibrated': .*entry 0 {message}"):
        kept(loaded, folder, mode="calibrated", risk=0.05)
    with pytest.raises(CorruptModelError, match=f"entry 0 {message}"):
        read_entries(read_pack(folder))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"format": "offramp-calibration", "version": 9, "entries": []}'])
def test_a_damaged_calibration_stops_what_needs_it_and_nothing_else(
    toy_path: Path, pack: Path, own_cache: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (pack / FILE_NAME).write_text(content)
    loaded = with_pack(toy_path, pack)
    needed = r"mode='calibrated': .*(calibration\.json|version|JSON)"
    with caplog.at_level(logging.WARNING), LLM.from_loaded(loaded, serving(pack, threshold=0.5)) as llm:
        for mode in ("lossless", "full", "unchecked"):
            assert llm.generate("a", GREEDY, RequestOptions(mode=mode))[0].report.mode == mode
        with pytest.raises(InvalidRequestError, match=needed) as caught:
            llm.generate("a", GREEDY, RequestOptions(mode="calibrated", risk=0.1))
        assert "offramp calibrate" in caught.value.hint
    assert "there is no mode calibrated" in caplog.text
    with pytest.raises(InvalidRequestError, match=needed):
        LLM.from_loaded(loaded, serving(pack, "calibrated", risk=0.1))


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"exit_threshold": {4: 0.5}}, "exit_threshold"),
        ({"exit_threshold": "1:0.5,9:0.5"}, "exit_threshold"),
        ({"exit_threshold": "depth:5"}, "exit_threshold"),
        ({"exit_threshold": 0.5, "exit_predictor": "pack:0.5"}, "exit_predictor"),
        ({"exit_threshold": "rate:0.5", "exit_predictor": "pack:0.5"}, "exit_predictor"),
    ],
)
def test_settings_that_the_pack_lacks_are_refused(
    toy_path: Path, pack: Path, own_cache: Path, settings: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        LLM(str(toy_path), threads=1, exits=pack, **settings)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("settings", "param", "message"),
    [
        ({"mode": "unchecked"}, "mode", "needs thresholds"),
        ({"mode": "calibrated"}, "risk", "needs a risk"),
        ({"mode": "calibrated", "risk": 0.1, "exit_threshold": "rate:0.5"}, "exit_threshold", "in mode calibrated"),
        ({"mode": "calibrated", "risk": 0.1, "exit_threshold": 0.9}, "exit_threshold", "in mode calibrated"),
        ({"mode": "calibrated", "risk": 0.1, "draft": "auto"}, "draft", "mode calibrated runs no drafts"),
        ({"mode": "unchecked", "exit_threshold": 0.9, "draft": "ngram"}, "draft", "mode unchecked runs no drafts"),
        ({"exit_measure": "margin"}, "exit_measure", "exit_measure needs exit_threshold"),
        ({"exit_fill": "deferred"}, "exit_fill", "exit_fill needs exit_threshold"),
        ({"exit_threshold": "rate:0.5", "exit_decay": 8}, "exit_decay", "exit_decay=8 beside"),
        ({"exit_threshold": "beta:0.5", "exit_fill": "propagate"}, "exit_threshold", "learns nothing"),
    ],
)
def test_settings_that_exclude_each_other_are_refused_before_the_model_is_looked_for(
    pack: Path, settings: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        LLM("no-such-model", exits=pack, **settings)
    assert caught.value.param == param
    assert caught.value.hint


@pytest.mark.parametrize("setting", [{"risk": 0.1}, {"exit_threshold": 0.5}, {"exit_batching": "barrier"}])
def test_settings_without_a_pack_are_refused(setting: dict[str, Any]) -> None:
    [name] = setting
    with pytest.raises(InvalidRequestError, match=f"{name} needs exits") as caught:
        LLM("no-such-model", **setting)
    assert caught.value.param == name


def test_identities_differ_where_answers_may(loaded: LoadedModel, pack: Path, toy_path: Path) -> None:
    stock = Promises(load_model(toy_path, threads=1), Serving())
    assert (stock.identity, stock.exit_layers, stock.policies(lambda: 0)) == ("", (), {})
    ours = [Promises(loaded, serving(pack, **more)) for more in ({}, {"threshold": 0.5}, {"threshold": 0.6})]
    assert len({promises.identity for promises in ours}) == 3
    assert ours[0].exit_layers == (1, 2, 3, DEPTH)
