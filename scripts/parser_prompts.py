"""Prompts for a student of the measured parser: OFFRAMP_DATA=... python scripts/parser_prompts.py PARSER OUT.jsonl

PARSER is a directory from `offramp train layerskip` on SNIPS; OFFRAMP_DATA is a folder with snips_train.jsonl (SNIPS,
CC0). Those are taken that the parser learned from: what its training kept aside stays aside.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

from benchmarks.early_exit.data import SNIPS, parser_pairs
from offramp.exits.pack_file import read_pack


def main() -> None:
    path, parser, out = Path(os.environ["OFFRAMP_DATA"]) / SNIPS, Path(sys.argv[1]), Path(sys.argv[2])
    seen, _ = parser_pairs(path, read_pack(parser / "exits").config.provenance, sys.maxsize)
    prompts = [pair.prompt for pair in seen]
    random.Random(0).shuffle(prompts)
    out.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), encoding="utf-8")


if __name__ == "__main__":
    main()
