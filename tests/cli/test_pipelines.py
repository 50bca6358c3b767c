"""`offramp serve --pipelines`: a file that can't be honoured is refused before anything is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.cli import serve as serve_module
from offramp.cli.pipeline_file import read_pipeline_file
from offramp.errors import InvalidRequestError

Offramp = Callable[..., Any]
MODELS = {"a": "a", "b": "b"}
GOOD: dict[str, object] = {"smart": {"little": "a", "big": "b", "policy": "cascade", "threshold": 0.4}}


def written(folder: Path, content: object) -> Path:
    path = folder / "pipelines.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_file_is_read_from_its_own_folder(tmp_path: Path) -> None:
    content = {"x": {"little": "a", "big": "b", "policy": "route", "router": "pack", "big_share": 0.3}}
    [spec] = read_pipeline_file(written(tmp_path, content), MODELS)
    assert (spec.name, spec.router) == ("x", tmp_path / "pack")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ("{}", "no pipelines"),
        ({"smart": {**dict(GOOD["smart"]), "big": "smart"}}, "'smart': big='smart' is no model but a pipeline"),  # type: ignore[call-overload]
        ({"a": GOOD["smart"]}, "'a' is both a model and a pipeline"),
        ('{"smart": {"little": "a", "little": "b"}}', "little"),
    ],
)
def test_what_is_wrong_is_refused_with_the_file(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        read_pipeline_file(written(tmp_path, content), MODELS)
    assert str(tmp_path) in caught.value.message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("threshold: .nan", "'smart': threshold=nan"),
        ("big_share: .inf", "'smart': big_share=inf"),
        ("threshold: 0.4\n  threshold: 0.5", "line 6: 'threshold' is given twice"),
        ("threshold: " + "[" * 3000, "pipelines.yaml"),
        ("threshold: *a", "aliases are not read"),
        ("threshold: high", "'smart': threshold='high'"),
    ],
)
def test_yaml_is_read_as_strictly(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "pipelines.yaml"
    begin = "smart:\n  little: a\n  big: b\n  policy: cascade\n  "
    path.write_text(f"{begin}threshold: 0.4  # as calibrated\n")
    [spec] = read_pipeline_file(path, MODELS)
    assert (spec.name, spec.threshold) == ("smart", 0.4)
    path.write_text(f"{begin}{line}\n")
    with pytest.raises(InvalidRequestError, match=re.escape(message)) as caught:
        read_pipeline_file(path, MODELS)
    assert str(path) in caught.value.message


def test_json_with_tabs_and_pairs_of_surrogates_stays_json(tmp_path: Path) -> None:
    path = written(
        tmp_path, '{\n\t"\\ud83d\\ude00": {"little": "a", "big": "b", "policy": "cascade", "threshold": 0.4}}'
    )
    assert [spec.name for spec in read_pipeline_file(path, MODELS)] == ["\N{GRINNING FACE}"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    for name in ("none.json", "none.yaml"):
        with pytest.raises(InvalidRequestError, match=rf"can't read .*{name}"):
            read_pipeline_file(tmp_path / name, MODELS)


def test_the_command_refuses_before_it_loads(offramp: Offramp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(serve_module, "run", never)
    done = offramp("serve", "a=x", "--pipelines", str(written(tmp_path, GOOD)))
    assert done.code == 2
    assert "big='b' is no served model" in done.err
    assert "hint: served models are a" in done.err


def test_pipelines_reach_the_server(offramp: Offramp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    monkeypatch.setattr(serve_module, "run", lambda *args: given.append(args[-1]))
    done = offramp("serve", "a=x", "b=y", "--port", "0", "--pipelines", str(written(tmp_path, GOOD)))
    assert done.code == 0, done.err
    [[spec]] = given
    assert spec.name == "smart"


def test_a_pair_that_is_not_started_as_one_is_refused_before_it_loads(offramp: Offramp, tmp_path: Path) -> None:
    swift = {"swift": {"little": "a", "big": "b", "policy": "big_little", "risk": 0.05}}
    done = offramp("serve", "a=x", "b=y", "--pipelines", str(written(tmp_path, swift)))
    assert done.code == 2
    assert "pipeline 'swift': big='b' is started without a draft model" in done.err
    assert "draft" in done.err.splitlines()[1]


def test_a_pair_of_a_models_file_reaches_the_server(
    offramp: Offramp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    monkeypatch.setattr(serve_module, "run", lambda *args: given.append(args[-1]))
    (tmp_path / "mine.json").write_text("{}")
    config = tmp_path / "models.json"
    big = {"model": "y", "draft_model": "smollm2-135m", "little_calibration": str(tmp_path / "mine.json")}
    config.write_text(json.dumps({"my-1b": big}))
    smart = {"smart": {"little": "smollm2-135m", "big": "my-1b", "policy": "big_little", "risk": 0.05}}
    done = offramp(
        *("serve", "--port", "0", "--models-config", str(config), "--pipelines", str(written(tmp_path, smart)))
    )
    assert done.code == 0, done.err
    [[spec]] = given
    assert (spec.policy, spec.risk) == ("big_little", 0.05)
