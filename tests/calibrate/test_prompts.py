from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from offramp.calibrate.prompts import check_unseen, read_prompts
from offramp.errors import InvalidRequestError
from offramp.prompt_lines import file_hash
from offramp.testing.models import loaded_model, scripted_model
from offramp.testing.scripted import ScriptedModel, follow
from tests.calibrate.settling import shared_pack

LOADED = scripted_model(follow())


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def test_lines_become_ids_through_the_chat_template(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hello"}]
    path = write(tmp_path / "p", {"prompt": "hello", "id": 3}, "\n", {"messages": messages}, {"prompt": "b"})
    file = read_prompts(path, LOADED, limit=2, seed=2**64 - 1)
    wanted = LOADED.template.encode_chat(LOADED.tokenizer, messages)
    assert [prompt.token_ids.tolist() for prompt in file.prompts] == [wanted, wanted]
    assert [prompt.seed for prompt in file.prompts] == [2**64 - 1, 0]
    assert [prompt.where for prompt in file.prompts] == [f"{path}, line 1", f"{path}, line 3"]
    [raw] = read_prompts(path, LOADED, raw=True, limit=1).prompts
    assert raw.token_ids.tolist() == LOADED.tokenizer.encode("hello")


def test_references_are_read_where_a_score_takes_them(tmp_path: Path) -> None:
    path = write(tmp_path / "p", {"prompt": "a", "reference": "x"}, {"prompt": "b", "reference": ["x", "y"]})
    assert [prompt.references for prompt in read_prompts(path, LOADED, scored=True).prompts] == [("x",), ("x", "y")]
    assert [prompt.references for prompt in read_prompts(path, LOADED).prompts] == [(), ()]


@pytest.mark.parametrize(
    ("lines", "how", "match"),
    [
        (["{oops\n"], {}, "line 1 is not JSON"),
        ([{"prompt": "a"}, {"prompt": 3}], {}, "line 2 has neither"),
        ([{"prompt": "a"}, {"messages": [{"role": "user"}]}], {}, "line 2"),
        ([{"messages": [{"role": "user", "content": "b"}]}], {"raw": True}, "line 1: messages need"),
        ([{"prompt": "a", "reference": "x"}, {"prompt": "a"}], {"scored": True}, "line 2 has no reference"),
        ([{"prompt": "a", "reference": []}], {"scored": True}, "line 1 has no reference"),
        ([{"prompt": "a", "reference": [1]}], {"scored": True}, "line 1 has no reference"),
        ([], {}, "no usable prompts"),
        (["\n", "  \n"], {}, "no usable prompts"),
        ([{"prompt": "a" * 600}, {"prompt": "b" * 600}], {}, "all 2 fill the context of 512"),
    ],
)
def test_what_is_no_prompt_is_refused_by_its_line(
    tmp_path: Path, lines: list[object], how: dict[str, bool], match: str
) -> None:
    with pytest.raises(InvalidRequestError, match=match):
        read_prompts(write(tmp_path / "p", *lines), LOADED, **how)  # type: ignore[arg-type]


def test_prompts_that_leave_no_room_are_left_out_and_named(tmp_path: Path) -> None:
    path = write(tmp_path / "p", {"prompt": "a" * 600}, {"prompt": "b"})
    file = read_prompts(path, LOADED)
    assert (len(file.prompts), file.too_long) == (1, [f"{path}, line 1"])
    assert file.prompts[0].seed == 1, "seeds count lines"


def test_the_file_that_a_pack_was_trained_on_is_refused(tmp_path: Path) -> None:
    pack = shared_pack()
    seen, unseen = write(tmp_path / "seen", {"prompt": "a"}), write(tmp_path / "unseen", {"prompt": "b"})
    for provenance in ({}, {"prompts": "some"}, {"prompts": {"sha256": file_hash(seen)}}):
        trained = replace(pack, config=replace(pack.config, provenance=provenance))
        check_unseen(unseen, trained)
    with pytest.raises(InvalidRequestError, match="was trained on"):
        check_unseen(seen, trained)
    with pytest.raises(InvalidRequestError, match="can't read"):
        check_unseen(tmp_path / "none", trained)


def test_without_a_chat_template_prompts_are_raw_or_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "p", {"prompt": "a"})
    vocab = LOADED.tokenizer.vocab_size
    bare = loaded_model(ScriptedModel(follow(), num_pages=4, vocab_size=vocab), template=None)
    with pytest.raises(InvalidRequestError, match="no chat template"):
        read_prompts(path, bare)
    assert len(read_prompts(path, bare, raw=True).prompts) == 1
