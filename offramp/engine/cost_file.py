"""Measured costs on disk: one small JSON file for each model, formats, kernels and machine."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from offramp.engine.cost_table import CostTable, Curve
from offramp.whole_file import whole_file

FILE_VERSION = 2
CURVES = ("layers", "per_token", "head")

log = logging.getLogger("offramp")


def cost_path(folder: Path, identity: Mapping[str, object]) -> Path:
    """Where costs measured under these circumstances are kept: any other value is another file."""
    text = json.dumps({**identity, "file_version": FILE_VERSION}, sort_keys=True)
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def read_costs(path: Path) -> CostTable | None:
    """The table in a file; None when there is none or it is damaged (then it is measured anew)."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        curves = {name: Curve(tuple((int(n), float(y)) for n, y in fields[name])) for name in CURVES}
        return CostTable(
            num_layers=int(fields["num_layers"]),
            context=int(fields["context"]),
            call=float(fields["call"]),
            load=float(fields["load"]),
            **curves,
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as damage:
        log.warning("measured costs %s can't be used (%s): measuring anew", path.name, damage)
        return None


def write_costs(path: Path, table: CostTable) -> None:
    """Keep a table, whole or not at all. A folder that can't be written costs a measurement at the next start."""
    fields = {"num_layers": table.num_layers, "context": table.context, "call": table.call, "load": table.load}
    curves = {name: getattr(table, name).points for name in CURVES}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(json.dumps({**fields, **curves}).encode())
    except OSError as error:
        log.warning("measured costs can't be kept in %s: %s", path.parent, error.strerror or error)
