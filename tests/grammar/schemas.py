"""Random JSON schemas that llguidance can do, and the judge of answers to them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import jsonschema_rs

WORDS = ("id", "name", "städte", "a b", 'quo"te', "x/y", "tags", "ok")
PATTERNS = {"^[a-c]{2,5}$": ("ab", "cabca"), "^(yes|no)$": ("yes", "no"), "^\\d{4}-\\d{2}$": ("2026-11", "0000-99")}
"""With some of the texts that match."""


def random_schema(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    """Small values of every type, nested at most so deep."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern", "length"]
    kinds += ["object", "array", "anyOf", "ref"] * (depth > 0)
    kind = rng.choice(kinds)
    if kind in ("boolean", "null"):
        return {"type": kind}
    if kind in ("integer", "number"):
        low = rng.randint(-50, 50)
        return {"type": kind, "minimum": low, "maximum": low + rng.randint(0, 99)}
    if kind == "string":
        return {"type": "string", "maxLength": rng.randint(0, 6)}
    if kind == "length":
        low = rng.randint(0, 4)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 4)}
    if kind == "pattern":
        return {"type": "string", "pattern": rng.choice(list(PATTERNS))}
    if kind == "enum":
        return {"enum": rng.sample(["a", "b c", 1, 2.5, None, True, "é", ["x"], {"k": 0}], rng.randint(1, 4))}
    if kind == "const":
        return {"const": rng.choice(["fixed text", 7, [1, 2], {"k": "v"}, None])}
    if kind == "array":
        low = rng.randint(0, 2)
        inner = random_schema(rng, depth - 1)
        return {"type": "array", "items": inner, "minItems": low, "maxItems": low + rng.randint(0, 2)}
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    return random_object(rng, depth, refers=kind == "ref")


def random_object(rng: random.Random, depth: int = 2, *, refers: bool = False) -> dict[str, Any]:
    names = rng.sample(WORDS, rng.randint(0, 4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: random_schema(rng, depth - 1) for name in names},
        "required": [name for name in names if rng.random() < 0.7],
        "additionalProperties": False,
    }
    if refers and names:
        schema["$defs"] = {"part": random_schema(rng, 0)}
        schema["properties"][names[0]] = {"$ref": "#/$defs/part"}
    return schema


def nested_definitions_are_shared(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with all $defs at its root, where its references look for them."""
    shared: dict[str, Any] = {}

    def lift(part: Any) -> Any:
        if isinstance(part, list):
            return [lift(each) for each in part]
        if not isinstance(part, dict):
            return part
        inner = {key: lift(value) for key, value in part.items() if key != "$defs"}
        if "$defs" in part:
            name = f"part{len(shared)}"
            shared[name] = lift(part["$defs"]["part"])
            for key, value in inner["properties"].items():
                if value == {"$ref": "#/$defs/part"}:
                    inner["properties"][key] = {"$ref": f"#/$defs/{name}"}
        return inner

    lifted = lift(schema)
    return {**lifted, "$defs": shared} if shared else dict(lifted)


def random_value(schema: Mapping[str, Any], rng: random.Random, shared: Mapping[str, Any] | None = None) -> Any:
    """A value of such a schema, properties in the order that it names them."""
    shared = schema.get("$defs", {}) if shared is None else shared
    if "$ref" in schema:
        return random_value(shared[schema["$ref"].rpartition("/")[2]], rng, shared)
    if "anyOf" in schema:
        return random_value(rng.choice(schema["anyOf"]), rng, shared)
    if "const" in schema or "enum" in schema:
        return rng.choice(schema.get("enum") or [schema["const"]])
    if "pattern" in schema:
        return rng.choice(PATTERNS[schema["pattern"]])
    kind = schema["type"]
    if kind == "object":
        chosen = [name for name in schema["properties"] if name in schema["required"] or rng.random() < 0.5]
        return {name: random_value(schema["properties"][name], rng, shared) for name in chosen}
    if kind == "array":
        count = rng.randint(schema["minItems"], schema["maxItems"])
        return [random_value(schema["items"], rng, shared) for _ in range(count)]
    if kind in ("integer", "number"):
        whole = rng.randint(schema["minimum"], schema["maximum"])
        return whole + 0.25 if kind == "number" and whole < schema["maximum"] else whole
    if kind == "string":
        count = rng.randint(schema.get("minLength", 0), schema["maxLength"])
        return "".join(rng.choice('ab é"\\/<\n1{') for _ in range(count))
    return rng.random() < 0.5 if kind == "boolean" else None


def is_valid(text: str, schema: Mapping[str, Any]) -> bool:
    """Whether a whole answer is JSON without repeated keys, and valid, as an independent library has it."""
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except ValueError:
        return False
    return jsonschema_rs.Draft202012Validator(schema).is_valid(value)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _refuse(constant: str) -> Any:
    """NaN and infinities are no JSON."""
    raise ValueError(constant)
