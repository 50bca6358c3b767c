"""The Grafana dashboard asks for metrics and labels that there are, and for all metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from offramp.llm.serving import Serving
from tests.llm.exiting import certified, serving, toy_pack
from tests.serve.asking import COMPLETIONS, Api, served

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana" / "offramp.json"
NAME = re.compile(r"offramp:\w+")
LABELS = re.compile(r"(?:by|label_values) ?\(([^()]+)\)|\{\{(\w+)\}\}")
HISTOGRAM = ("_bucket", "_sum", "_count")


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    return dict(json.loads(DASHBOARD.read_text(encoding="utf-8")))


@pytest.fixture
def page(toy_path: Path, tmp_path: Path, own_cache: Path) -> str:
    """The metrics of a server that has drafted and could exit."""
    pack = toy_pack(tmp_path / "mine", toy_path)
    exits = serving(pack, threshold="0.5").exits
    with served(certified(toy_path, pack), Serving(draft="ngram", draft_length="fixed", exits=exits)) as api:
        return answered(api)


def answered(api: Api) -> str:
    """The metrics after an answer that repeats itself."""
    api.answer(COMPLETIONS, prompt="hello hello hello hello", temperature=0, max_tokens=40, ignore_eos=True)
    return api.get("/metrics").text


def names_on(page: str) -> set[str]:
    """Of all series that have a type, with a sample or without."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE))
    plain = {name for name, kind in kinds.items() if kind != "histogram" and not name.endswith("_created")}
    return plain | {name + end for name, kind in kinds.items() if kind == "histogram" for end in HISTOGRAM}


def labels_on(page: str) -> set[str]:
    return {
        label for each in text_string_to_metric_families(page) for sample in each.samples for label in sample.labels
    }


def targets(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [target for panel in dashboard["panels"] for target in panel.get("targets", [])]


def queries(dashboard: dict[str, Any]) -> list[str]:
    variables = [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    return [*(target["expr"] for target in targets(dashboard)), *variables]


def named(texts: list[str]) -> set[str]:
    return {name for text in texts for name in NAME.findall(text)}


def test_every_metric_that_is_asked_for_exists(dashboard: dict[str, Any], page: str) -> None:
    asked = named(queries(dashboard))
    assert asked - names_on(page) == set()
    assert len(asked) > 25


def test_every_metric_that_exists_is_shown(dashboard: dict[str, Any], page: str) -> None:
    def family(name: str) -> str:
        return re.sub("_(bucket|sum|count)$", "", name)

    assert {family(name) for name in names_on(page)} == {family(name) for name in named(queries(dashboard))}


def test_every_label_that_is_asked_for_exists(dashboard: dict[str, Any], page: str) -> None:
    texts = [*queries(dashboard), *(target["legendFormat"] for target in targets(dashboard))]
    found = [match for text in texts for match in LABELS.findall(text)]
    asked = {label.strip() for group, one in found for label in (group or one).split(",")} - {
        "offramp:num_requests_running"
    }
    assert {"position", "layer", "le", "route", "status", "finished_reason", "model_name"} <= asked | {"model_name"}
    assert asked - labels_on(page) == set()


def test_a_wrong_name_is_found(page: str) -> None:
    assert named(["rate(offramp:no_such_total[1m])"]) - names_on(page) == {"offramp:no_such_total"}


def test_panels_have_titles_ids_and_places_of_their_own(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not own & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= own


def test_it_names_no_source_of_its_own(dashboard: dict[str, Any]) -> None:
    """So that it can be imported anywhere."""
    sources = {target["datasource"]["uid"] for target in targets(dashboard)}
    assert sources == {"${source}"}
