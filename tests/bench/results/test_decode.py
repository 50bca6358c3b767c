"""What a dataclass wrote is read back; anything else is refused by the field's name."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from offramp.bench.results.decode import decoded
from offramp.bench.results.lines import ItemLine, RunLine
from offramp.bench.workloads.item import CodeTest, Item
from tests.bench.results.made import item_line, run_line

ITEM = replace(item_line("plain", 0, "one", [(1.5, 1), (2.5, 2)]), drafted=(3, 1), exit_layers=(2, 2, 4), text="hi")


def test_what_was_written_is_read_back() -> None:
    assert decoded(ItemLine, json.loads(json.dumps(asdict(ITEM)))) == ITEM
    run = run_line("plain", "auto", streams=(1, 4))
    assert decoded(RunLine, json.loads(json.dumps(asdict(run)))) == run


def test_dataclasses_within_others() -> None:
    code = CodeTest(before="def f():", after="check", entry_point="f")
    talk = [{"role": "user", "content": "hi"}]
    for item in (Item(name="a", task="t", content="x", code=code), Item(name="a", task="t", content=talk)):
        assert decoded(Item, json.loads(json.dumps(asdict(item)))) == item


def test_fields_with_defaults_may_be_left_out() -> None:
    fields = {name: value for name, value in asdict(ITEM).items() if name not in ("drafted", "text", "kind")}
    assert decoded(ItemLine, json.loads(json.dumps(fields))) == replace(ITEM, drafted=(), text=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round": "0"}, "round is '0'"),
        ({"round": 0.5}, "round is 0.5"),
        ({"round": True}, "round is True"),
        ({"first_seconds": float("nan")}, "first_seconds is nan"),
        ({"first_seconds": None}, "first_seconds is None"),
        ({"token_ids": [1, "2"]}, r"token_ids\[1\] is '2'"),
        ({"token_ids": 7}, "token_ids is 7"),
        ({"steps": [[1.0, 1, 1]]}, "steps"),
        ({"text": 7}, "text is 7"),
        ({"speed": 1}, "there is no field 'speed'"),
        ({"item": ...}, "item is missing"),
    ],
)
def test_anything_else_is_refused(change: dict[str, object], message: str) -> None:
    fields = {name: value for name, value in (asdict(ITEM) | change).items() if value is not ...}
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    fields["steps"] = [list(step) for step in fields["steps"]]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=message):
        decoded(ItemLine, fields)


def test_no_object() -> None:
    with pytest.raises(ValueError, match="is no object"):
        decoded(ItemLine, [1])
