"""The folder of a training under way: what was done survives an interruption, and another training's is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offramp.errors import InvalidRequestError
from offramp.whole_file import whole_file

STATE = "state.json"


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


def open_work(path: Path, identity: Mapping[str, object]) -> WorkFolder:
    """The folder of the training with that identity, new or to be resumed.

    Raises InvalidRequestError naming what differs where it belongs to another one.
    """
    wanted = json.loads(json.dumps(identity))  # tuples become lists
    file = path / STATE
    if not file.exists():
        path.mkdir(parents=True, exist_ok=True)
        folder = WorkFolder(path, {})
        folder.note(identity=wanted, seconds=0.0)
        return folder
    state = json.loads(file.read_text(encoding="utf-8"))
    before = state["identity"]
    changed = sorted(name for name in wanted.keys() | before.keys() if wanted.get(name) != before.get(name))
    if changed:
        raise InvalidRequestError(
            f"{path} holds another training: {', '.join(changed)} differ",
            hint="name another folder with --work, or delete this one to start over",
        )
    return WorkFolder(path, state)
