"""Alerts and dashboards: Prometheus reads each expression, alerts go off when due, panels are whole."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from infra.load import load
from infra.model import Cluster
from infra.render.kubernetes import charts, pages, watching
from infra.render.templating import TEMPLATES
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ENVIRONMENTS = Path(__file__).parents[3] / "environments"
ALERTS = sorted((TEMPLATES / "kubernetes" / "static" / "alerts").glob("*.yaml"))
BOARDS = sorted((TEMPLATES / "kubernetes" / "static" / "dashboards").glob("*.json"))
HERE = Path(__file__).parent


@cache
def shipped(name: str) -> Cluster:
    return resolve(load(ENVIRONMENTS / f"{name}.yaml").spec, Lock(), name)[0]


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool: Debian and Ubuntu have it in the package prometheus")
    return found


def run(*command: str | Path) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("file", ALERTS, ids=lambda file: file.stem)
def test_prometheus_reads_the_alerts(promtool: str, file: Path) -> None:
    run(promtool, "check", "rules", file)


def test_prometheus_reads_what_is_rendered(promtool: str, tmp_path: Path) -> None:
    for each in watching.objects(shipped("research"))["rules.yaml"]:
        file = tmp_path / f"{each['metadata']['name']}.yaml"
        file.write_text(yaml.safe_dump(each["spec"]))
        run(promtool, "check", "rules", file)


def test_alerts_go_off_when_they_should(promtool: str, tmp_path: Path) -> None:
    """promtool's own unit tests of rules, over made-up figures."""
    for file in ALERTS:
        shutil.copy(file, tmp_path)
    shutil.copy(HERE / "alerts.test.yaml", tmp_path)
    run(promtool, "test", "rules", tmp_path / "alerts.test.yaml")


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


def test_prometheus_reads_every_expression_of_the_dashboards(promtool: str, tmp_path: Path) -> None:
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
    run(promtool, "check", "rules", file)


def _filled(expression: str) -> str:
    return re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "5m"))


def test_what_there_is_nothing_of_is_not_watched() -> None:
    names = {each["metadata"]["name"] for each in watching.objects(shipped("minimal"))["dashboards.yaml"]}
    assert "dashboard-gpus" not in names
    assert "dashboard-jobs" in names
    rules = {each["metadata"]["name"] for each in watching.objects(shipped("minimal"))["rules.yaml"]}
    assert "causeway-gpus" not in rules


def test_gateways_and_vpn_servers_are_watched_where_there_are_any() -> None:
    def watched(cluster: Cluster) -> set[str]:
        found = watching.objects(cluster)
        names = {
            each["metadata"]["name"] for kind in ("rules.yaml", "dashboards.yaml") for each in found[kind]
        }
        return names & {"causeway-gateways", "causeway-remote-access", "dashboard-private-network"}

    cluster = shipped("research")
    assert cluster.gateways
    assert cluster.access.vpn.servers
    nobody = replace(cluster.access, vpn=replace(cluster.access.vpn, servers=()))
    assert watched(cluster) == {"causeway-gateways", "causeway-remote-access", "dashboard-private-network"}
    assert watched(replace(cluster, gateways=())) == {"causeway-remote-access", "dashboard-private-network"}
    assert watched(replace(cluster, access=nobody)) == {"causeway-gateways", "dashboard-private-network"}
    assert watched(replace(cluster, gateways=(), access=nobody)) == set()


def test_a_copy_is_late_by_the_spec_s_own_interval() -> None:
    cluster = shipped("research")
    daily = replace(cluster, kubernetes=replace(cluster.kubernetes, snapshot_seconds=86400))
    rules = watching.objects(daily)["rules.yaml"]
    [intervals] = (each for each in rules if each["metadata"]["name"] == "causeway-intervals")
    [[row]] = (group["rules"] for group in intervals["spec"]["groups"])
    alerts = next(file for file in ALERTS if file.stem == "control-plane").read_text()
    assert f"scalar({row['record']})" in alerts
    assert row["expr"] == "vector(86400)"


def test_certificates_that_people_have_for_hours_alarm_nobody() -> None:
    disabled = charts.values(shipped("research"))["kube-prometheus-stack"]["defaultRules"]["disabled"]
    assert disabled == {"KubeClientCertificateExpiration": True}
    assert not any("apiserver_client_certificate_expiration" in file.read_text() for file in ALERTS)


def test_pages_have_one_certificate_that_is_renewed_in_time() -> None:
    cluster = shipped("research")
    found = pages.objects(cluster)
    [certificate] = [each for each in found["authority.yaml"] if each["kind"] == "Certificate"]
    assert "*.research.internal" in certificate["spec"]["dnsNames"]
    hours = {key: int(certificate["spec"][key].removesuffix("h")) for key in ("duration", "renewBefore")}
    assert hours["renewBefore"] * 3 == hours["duration"]
