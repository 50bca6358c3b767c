"""Training data: what is read, what is refused by line, what is held out."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.errors import InvalidRequestError
from offramp.train.pairs import Pair, held_out, read_pairs, read_prompts, split_pairs


def write(path: Path, text: str | bytes) -> Path:
    path = path / "data.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_pairs_are_read_and_each_prompt_once(tmp_path: Path) -> None:
    lines = ['{"prompt": "a", "reference": "A", "id": 7}', "", '{"prompt": "b", "reference": "B"}']
    lines.append('{"prompt": "a", "reference": "other"}')
    path = write(tmp_path, "\n".join(lines))
    assert read_pairs(path) == [Pair("a", "A"), Pair("b", "B")]
    assert read_prompts(path) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": "a", "reference": "A"}\n{', "line 2 is not JSON"),
        ("[1]", "line 1 is not an object"),
        ('{"prompt": "a"}', "line 1: 'reference' holds no text"),
        ('{"prompt": " ", "reference": "A"}', "line 1: 'prompt' holds no text"),
        ('{"prompt": 3, "reference": "A"}', "line 1 has neither a text as prompt"),
        ("\n\n", "holds no prompts"),
        (b"\xff\xfe", "codec can.t decode"),
    ],
)
def test_what_is_no_data_is_refused_by_line(text: str | bytes, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InvalidRequestError, match=message) as caught:
        read_pairs(path)
    undecodable = isinstance(text, bytes)
    assert ('{"prompt": "...", "reference": "..."}' in caught.value.hint) != undecodable


@pytest.mark.parametrize("text", ["{", "[1]", '{"prompt": " "}', '{"messages": [{}]}', '{"text": "a"}', ""])
def test_prompts_alone_are_hinted_at_where_prompts_are_all_it_takes(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_prompts(write(tmp_path, text))
    assert caught.value.hint.endswith('such as {"prompt": "..."}')


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"can't read .*nowhere"):
        read_prompts(tmp_path / "nowhere")


def test_who_is_held_out_depends_on_prompt_and_seed_alone() -> None:
    prompts = [f"prompt {i}" for i in range(4000)]
    kept = {prompt for prompt in prompts if held_out(prompt, 0.1, seed=0)}
    assert 320 < len(kept) < 480  # four standard deviations
    assert kept < {prompt for prompt in prompts if held_out(prompt, 0.2, seed=0)}
    assert kept != {prompt for prompt in prompts if held_out(prompt, 0.1, seed=1)}


def test_a_split_keeps_everyone_once() -> None:
    pairs = [Pair(f"prompt {i}", "x") for i in range(100)]
    trained, kept = split_pairs(pairs, 0.2, seed=3)
    assert sorted([*trained, *kept], key=pairs.index) == pairs
    assert kept == split_pairs(pairs[::-1], 0.2, seed=3)[1][::-1]
    with pytest.raises(InvalidRequestError, match="too few"):
        split_pairs(pairs[:1], 0.2, seed=3)
