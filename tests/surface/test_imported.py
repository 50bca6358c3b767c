"""What gets imported when: nothing heavy by `import offramp`, and never torch at run time."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = [
    "fastapi",
    "gguf",
    "huggingface_hub",
    "jinja2",
    "pydantic",
    "rich",
    "safetensors",
    "tokenizers",
    "typer",
    "uvicorn",
]

BLOCKER = """
import importlib, pkgutil, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers"}:
            raise ModuleNotFoundError(f"{name} is hidden")

sys.meta_path.insert(0, Blocker())
import offramp
"""

EVERYTHING = """

names = ["offramp"]
for module in pkgutil.walk_packages(offramp.__path__, "offramp."):
    if not module.name.startswith("offramp.train") and module.name != "offramp.__main__":
        importlib.import_module(module.name)
        names.append(module.name)
assert not {"torch", "transformers"} & set(sys.modules)
print(len(names))
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_imports_without_torch(package_imports: dict[str, list[str]]) -> None:
    wanted = [name for name in package_imports if not name.startswith("offramp.train") and name != "offramp.__main__"]
    assert int(run(BLOCKER + EVERYTHING)) >= len(wanted)


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_the_blocker_blocks(name: str) -> None:
    with pytest.raises(AssertionError, match="is hidden"):
        run(BLOCKER + f"import {name}")


def test_import_offramp_loads_nothing_heavy() -> None:
    loaded = run("import sys, offramp; print(*sys.modules)").split()
    assert "offramp" in loaded
    assert sorted({name.split(".")[0] for name in loaded} & {*HEAVY, "torch", "transformers"}) == []
