"""Alerts and dashboards: Prometheus reads each expression, alerts go off when due, panels are whole."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from golden_clusters import golden
from msgspec.structs import replace
from render.tools import needs, run

from infra.render.kubernetes import watching
from infra.render.templating import TEMPLATES

ALERTS = sorted((TEMPLATES / "kubernetes" / "static" / "alerts").glob("*.yaml"))
BOARDS = sorted((TEMPLATES / "kubernetes" / "static" / "dashboards").glob("*.json"))
HERE = Path(__file__).parent


@needs("prometheus", "promtool")
def test_prometheus_reads_what_is_rendered(tmp_path: Path) -> None:
    for each in watching.objects(golden("research"))["rules.yaml"]:
        file = tmp_path / f"{each['metadata']['name']}.yaml"
        file.write_text(yaml.safe_dump(each["spec"]))
        run("promtool", "check", "rules", file)


@needs("prometheus", "promtool")
def test_alerts_go_off_when_they_should(tmp_path: Path) -> None:
    """promtool's own unit tests of rules, over made-up figures."""
    for file in ALERTS:
        shutil.copy(file, tmp_path)
    shutil.copy(HERE / "alerts.test.yaml", tmp_path)
    run("promtool", "test", "rules", tmp_path / "alerts.test.yaml")


def panels(board: Any) -> Iterator[Any]:
    yield from (panel for panel in board["panels"] if panel["type"] != "row")


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_a_dashboard_is_whole(file: Path) -> None:
    board = json.loads(file.read_text())
    assert board["uid"] == f"causeway-{file.stem}"
    assert board["editable"] is False
    assert board["templating"]["list"][0]["name"] == "datasource"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    known = {each["name"] for each in board["templating"]["list"]} | {"__rate_interval", "__all"}
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, f"{panel['title']} stands over another"
        taken |= cells
    for panel in panels(board):
        assert panel["title"]
        assert panel["targets"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= known


@needs("prometheus", "promtool")
def test_prometheus_reads_every_expression_of_the_dashboards(tmp_path: Path) -> None:
    """As rules, with variables filled in: the promtool of a release has no other way to parse one."""
    rules = [
        {
            "record": "panel",
            "expr": _filled(target["expr"]),
            "labels": {"board": file.stem, "panel": str(number)},
        }
        for file in BOARDS
        for number, target in enumerate(
            target for panel in panels(json.loads(file.read_text())) for target in panel["targets"]
        )
    ]
    assert len(rules) > 50
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    run("promtool", "check", "rules", file)


def _filled(expression: str) -> str:
    return re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "5m"))


def test_a_copy_is_late_by_the_spec_s_own_interval() -> None:
    cluster = golden("research")
    daily = replace(cluster, kubernetes=replace(cluster.kubernetes, snapshot_seconds=86400))
    rules = watching.objects(daily)["rules.yaml"]
    [intervals] = (each for each in rules if each["metadata"]["name"] == "causeway-intervals")
    [[row]] = (group["rules"] for group in intervals["spec"]["groups"])
    alerts = next(file for file in ALERTS if file.stem == "control-plane").read_text()
    assert f"scalar({row['record']})" in alerts
    assert row["expr"] == "vector(86400)"
