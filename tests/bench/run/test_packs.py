"""What methods read besides the model is told apart by content, and a model's tensors are read for that once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offramp.bench.run.method import Method
from offramp.bench.run.packs import pack_hashes
from offramp.errors import ModelError
from offramp.llm.loading import load_model
from offramp.llm.model_flags import ModelFlags
from offramp.model.checkpoint import Checkpoint, open_checkpoint
from offramp.native.converting import convert
from offramp.testing.models import write_chat_model
from tests.llm.test_draft_model import write_model


def hashed(draft_model: Path) -> str:
    method = Method("model", ModelFlags(draft_model=str(draft_model)))
    [found] = pack_hashes([Method("plain", ModelFlags()), method]).values()
    return found


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Checkpoints whose tensors were all read for their hash."""
    read: list[Path] = []
    real = Checkpoint.source_hash

    def noted(checkpoint: Checkpoint) -> str:
        read.append(checkpoint.path)
        return real(checkpoint)

    monkeypatch.setattr(Checkpoint, "source_hash", noted)
    return read


def test_tensors_of_a_draft_model_are_read_once_and_then_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unread: list[Path]
) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path / "cache"))
    model = write_model(tmp_path / "little.gguf")
    first = hashed(model)
    assert unread == [model]
    load_model(model, threads=1)
    unread.clear()
    assert hashed(model) == first
    assert unread == [], "as the prepared weights know them"
    os.utime(model)
    assert hashed(model) == first
    assert unread == [model], "as it may have been written anew"


def test_another_draft_model_has_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "m.gguf"
    kinds = [
        write_model(path).read_bytes(),
        write_model(path, max_context=128).read_bytes(),  # equal tensors, as in those that follow
        write_model(path, renamed=True).read_bytes(),
        write_chat_model(path).read_bytes(),  # other ones
        write_chat_model(path, template=False).read_bytes(),
    ]
    found = []
    for content in kinds:
        path.write_bytes(content)
        found.append(hashed(path))
    assert len(set(found)) == len(kinds)


def test_small_files_beside_the_tensors_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "little"
    folder.mkdir()
    write_model(folder / "little.gguf")
    before = hashed(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert hashed(folder) != before
    (folder / "chat_template.jinja").unlink()
    assert hashed(folder) == before


def test_of_a_converted_model_the_hash_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unread: list[Path]
) -> None:
    checkpoint = open_checkpoint(write_model(tmp_path / "little.gguf"))
    for fmt in ("q8", "q4"):
        weights = checkpoint.weights(fmt)  # type: ignore[arg-type]
        convert(checkpoint, weights, tmp_path / fmt, source="little", tell=lambda *done: None)
    unread.clear()
    assert hashed(tmp_path / "q8") != hashed(tmp_path / "q4"), "formats are part of it"
    assert unread == []


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "little.gguf"
    path.write_text("none")
    with pytest.raises(ModelError, match=r"little\.gguf"):
        hashed(path)
