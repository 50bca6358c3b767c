"""What is asked: grammars that bind an answer hardly at all, one that binds most of it, and prompts for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from offramp.core import StructuredOutputsParams
from offramp.llm.loading import LoadedModel

WIDE_SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "summary": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "facts": {"type": "array", "items": {"type": "object"}},
        "population": {"type": "number"},
        "capital": {"type": "boolean"},
    },
}
WIDE: Mapping[str, StructuredOutputsParams] = {
    "json_object": StructuredOutputsParams(json_object=True),
    "wide schema": StructuredOutputsParams(json=WIDE_SCHEMA),
    "any text": StructuredOutputsParams(regex=r"(.|\n)*"),
}
"""By name; every property may be left out, and others added."""

LEVEL = {"enum": ["none", "low", "medium", "high"]}
STATION = {
    "type": "object",
    "properties": {
        "station_identifier": {"type": "integer", "minimum": 1000, "maximum": 9999},
        "station_operator": {"enum": ["national_weather_service", "volunteer_observer"]},
        "automatic_measurement": {"type": "boolean"},
    },
    "required": ["station_identifier", "station_operator", "automatic_measurement"],
    "additionalProperties": False,
}
PROPERTIES = {
    "document_type": {"const": "weather_report"},
    "schema_version": {"const": "2026-11"},
    "location_name": {"type": "string", "maxLength": 20},
    "temperature_unit": {"enum": ["celsius", "fahrenheit"]},
    "minimum_temperature": {"type": "integer", "minimum": -40, "maximum": 50},
    "maximum_temperature": {"type": "integer", "minimum": -40, "maximum": 50},
    "wind_direction": {"enum": ["north", "east", "south", "west"]},
    "precipitation_probability": LEVEL,
    "thunderstorm_probability": LEVEL,
    "measuring_station": STATION,
    "official_forecast": {"type": "boolean"},
}
FIXED_SCHEMA = {
    "type": "object",
    "properties": PROPERTIES,
    "required": list(PROPERTIES),
    "additionalProperties": False,
}
FIXED = StructuredOutputsParams(json=FIXED_SCHEMA, disable_any_whitespace=True)

PLACES = ("Paris", "Cairo", "Lima", "Oslo", "Mumbai", "Nairobi", "Kyoto", "Boston", "Prague", "Quito", "Perth", "Riga")
DESCRIBE, REPORT = "Describe {place} in many facts, as a JSON object.", "Give a weather report for {place} as JSON."


def prompts(loaded: LoadedModel, text: str, count: int) -> list[list[int]]:
    """So many of one kind, as ids."""
    assert count <= len(PLACES), "no more places"
    encode = loaded.template.encode_chat
    return [
        encode(loaded.tokenizer, [{"role": "user", "content": text.format(place=place)}]) for place in PLACES[:count]
    ]


def groups(items: Sequence[list[int]], size: int) -> list[list[list[int]]]:
    """Those that run at once; what is left over is left out."""
    assert len(items) >= size, f"{len(items)} prompts for {size} streams"
    return [list(items[start : start + size]) for start in range(0, len(items) - size + 1, size)]
