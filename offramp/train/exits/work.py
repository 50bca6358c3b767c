"""The folder of a training under way: what was done survives an interruption, and another training's is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offramp.errors import InvalidRequestError
from offramp.whole_file import whole_file

STATE, ANSWERS = "state.json", "answers.jsonl"


@dataclass(slots=True)
class WorkFolder:
    """A folder and what is known of the training in it; `note` keeps more, at once."""

    path: Path
    state: dict[str, Any]

    def note(self, **values: object) -> None:
        """Keep values, on disk."""
        self.state.update(values)
        with whole_file(self.path / STATE) as file:
            file.write(json.dumps(self.state, indent=1).encode())

    @property
    def answers(self) -> Path:
        """The file of answers; there may be none yet."""
        return self.path / ANSWERS

    @property
    def worth_keeping(self) -> bool:
        """There is something to go on from."""
        return self.answers.exists() and self.answers.stat().st_size > 0

    def discard(self) -> None:
        """Delete it with its answers. Others' files stay, and the folder with them."""
        for file in (self.path / STATE, self.answers):
            file.unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()


@contextmanager
def kept_if_worth_it(folder: WorkFolder) -> Iterator[None]:
    """Whatever ends the training, a folder without anything to go on from does not stay."""
    try:
        yield
    finally:
        if not folder.worth_keeping:
            folder.discard()


def open_work(path: Path, identity: Mapping[str, object]) -> WorkFolder:
    """The folder of the training with that identity, new or to be resumed.

    Raises InvalidRequestError naming what differs where it belongs to another one.
    """
    wanted = json.loads(json.dumps(identity))  # tuples become lists
    file = path / STATE
    if file.exists():
        folder = WorkFolder(path, json.loads(file.read_text(encoding="utf-8")))
        changed = _changed(wanted, folder.state["identity"])
        if not changed:
            return folder
        if folder.worth_keeping:
            raise InvalidRequestError(
                f"{path} holds another training: {', '.join(changed)} differ",
                hint="name another folder with --work, or delete this one to start over",
            )
    path.mkdir(parents=True, exist_ok=True)
    folder = WorkFolder(path, {})
    folder.note(identity=wanted, seconds=0.0)
    return folder


def _changed(wanted: Mapping[str, object], before: Mapping[str, object]) -> list[str]:
    return sorted(name for name in wanted.keys() | before.keys() if wanted.get(name) != before.get(name))
