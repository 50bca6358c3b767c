"""Lower layers never import higher ones, and siblings never import each other."""

from __future__ import annotations

import pytest

ORDER = [
    ["errors", "fork", "json_depth", "option_names", "whole_file"],
    ["params", "prompt_lines", "quality", "yaml_file"],
    ["core"],
    ["sample", "cache", "model"],
    ["native", "grammar"],
    ["exits", "verify"],
    ["draft"],
    ["engine"],
    ["collaborate"],
    ["llm"],
    ["serve", "train", "calibrate", "bench"],
    ["cli"],
    ["__main__"],
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
LIGHT = [name for names in ORDER for name in names if name != "train"]

Imports = dict[str, list[str]]


def layer_of(module: str) -> str | None:
    """offramp.model.gguf -> model; None for the package itself and for what is not ours."""
    parts = module.split(".")
    return parts[1] if parts[0] == "offramp" and len(parts) > 1 else None


def wrong_imports(imports: Imports) -> list[str]:
    """Every import of the package that points upwards, sideways, at test code or at an unknown layer."""
    wrong = []
    for module, names in imports.items():
        here = layer_of(module)
        for name in names:
            there = layer_of(name)
            if here in (None, "testing") or there in (None, here):
                continue
            if there not in RANK or RANK[there] >= RANK[str(here)]:
                wrong.append(f"{module} imports {name}")
    return wrong


def heavy_imports(imports: Imports) -> list[str]:
    heavy = {"torch", "transformers"}
    pairs = [(module, name) for module, names in imports.items() for name in names if layer_of(module) in LIGHT]
    return [f"{module} imports {name}" for module, name in pairs if name.split(".")[0] in heavy]


def test_every_module_has_a_layer(package_imports: Imports) -> None:
    layers = {layer_of(module) for module in package_imports} - {None}
    assert layers - set(RANK) == {"testing"}
    assert {"core", "errors", "model", "native", "engine", "cache", "sample", "verify", "draft", "exits"} <= layers


def test_imports_point_downwards(package_imports: Imports) -> None:
    assert wrong_imports(package_imports) == []


def test_the_package_itself_is_no_way_around(package_imports: Imports) -> None:
    """`from offramp import LLM` inside the package would hide an upward import."""
    inside = [(module, names) for module, names in package_imports.items() if layer_of(module) not in (None, "testing")]
    known = {layer_of(module) for module in package_imports} | {"__version__"}
    assert [(m, n) for m, names in inside for n in names if n.startswith("offramp.") and layer_of(n) not in known] == []
    assert [m for m, names in inside if "offramp" in names] == []


def test_no_module_names_torch(package_imports: Imports) -> None:
    assert heavy_imports(package_imports) == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("offramp.core", "offramp.model.config.ModelConfig"),  # upwards
        ("offramp.cache.pages", "offramp.sample.race.draw"),  # sideways
        ("offramp.exits.policy", "offramp.verify.exact"),
        ("offramp.engine.engine", "offramp.testing.toy"),  # test code
        ("offramp.native.executor", "offramp.helpers"),  # no such layer
        ("offramp.errors", "offramp.core"),
    ],
)
def test_a_wrong_import_is_found(module: str, name: str) -> None:
    assert wrong_imports({module: ["numpy", name]}) == [f"{module} imports {name}"]


def test_torch_is_found() -> None:
    assert heavy_imports({"offramp.exits.heads": ["torch.nn"]}) == ["offramp.exits.heads imports torch.nn"]
    assert heavy_imports({"offramp.train.heads": ["torch.nn"]}) == []


def test_right_imports_pass() -> None:
    good = {"offramp.native.executor": ["numpy", "offramp.core.Rows", "offramp.native.threads", "offramp.model.rope"]}
    assert wrong_imports(good) == []
    assert wrong_imports({"offramp.testing.toy": ["offramp.engine.engine"]}) == []
