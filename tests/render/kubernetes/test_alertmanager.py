"""Alertmanager with the configuration that Helm makes of our values: what it sends, where secrets are."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import kube_tools
import pytest
import urllib3
import yaml
from golden_clusters import golden
from msgspec.structs import replace
from ports import reserved
from render.tools import needs, run
from waiting import until
from web import Handler, serving

from infra.model.kubernetes import Alerts
from infra.render.kubernetes import charts
from infra.render.kubernetes.charts.monitoring import ALERT_RECEIVERS

CHART = "kube-prometheus-stack"
TOKEN = "xoxb-0-made-up"


def rendered(alerts: Alerts) -> tuple[Any, Any]:
    """Alertmanager's object, and its configuration."""
    cluster = golden("minimal")
    cluster = replace(cluster, kubernetes=replace(cluster.kubernetes, alerts=alerts))
    objects = kube_tools.templated(CHART, {**charts.values(cluster)[CHART], "crds": {"enabled": False}})
    [manager] = (each for each in objects if each["kind"] == "Alertmanager")
    name = f"alertmanager-{manager['metadata']['name']}"
    [secret] = (each for each in objects if each["kind"] == "Secret" and each["metadata"]["name"] == name)
    return manager, yaml.safe_load(base64.b64decode(secret["data"]["alertmanager.yaml"]))


def test_receivers_read_what_is_mounted() -> None:
    manager, config = rendered(Alerts("ops", "alerts/slack", "alerts/webhook"))
    [volume] = manager["spec"]["volumes"]
    [mount] = manager["spec"]["volumeMounts"]
    assert volume["secret"] == {"secretName": ALERT_RECEIVERS, "optional": True}
    assert volume["name"] == mount["name"]
    files = re.findall(r"_file: (\S+)", yaml.safe_dump(config))
    folder = mount["mountPath"]
    assert {*files} == {f"{folder}/slack", f"{folder}/slack_webhook", f"{folder}/webhook"}
    assert {*Alerts("ops", "a", "b").secrets} == {file.removeprefix(f"{folder}/") for file in files}


def test_without_receivers_nothing_is_sent() -> None:
    manager, config = rendered(Alerts(None, None, None))
    assert "volumes" not in manager["spec"]
    assert [each["name"] for each in config["receivers"]] == ["null"]
    assert config["route"]["receiver"] == "null"


class World:
    """An Alertmanager, and a server that plays Slack and remembers what it was sent."""

    def __init__(self) -> None:
        self.heard: Queue[tuple[str, str | None, Any]] = Queue()
        self.port = 0

    def handler(self) -> type[Handler]:
        world = self

        class Answers(Handler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                world.heard.put((self.path, self.headers["Authorization"], body))
                self.answer(200, b'{"ok": true}', Content_Type="application/json")

        return Answers

    def fire(self, **labels: str) -> None:
        alert = {"labels": labels, "annotations": {"summary": "all is <not> well", "description": "a & b"}}
        url = f"http://127.0.0.1:{self.port}/api/v2/alerts"
        assert urllib3.request("POST", url, json=[alert], retries=False).status == 200

    def ready(self) -> bool:
        try:
            return (
                urllib3.request("GET", f"http://127.0.0.1:{self.port}/-/ready", retries=False).status == 200
            )
        except urllib3.exceptions.HTTPError:
            return False


@contextmanager
def running(folder: Path, alerts: Alerts) -> Iterator[World]:
    """With its files in a folder and Slack on loopback; it sends at once. All else is as Helm renders it."""
    manager, config = rendered(alerts)
    world = World()
    with serving(world.handler()) as slack, reserved(1) as [world.port]:
        text = yaml.safe_dump(config).replace(manager["spec"]["volumeMounts"][0]["mountPath"], str(folder))
        text = text.replace("https://slack.com", f"http://127.0.0.1:{slack}").replace(
            "group_wait: 30s", "group_wait: 0s"
        )
        (folder / "slack_webhook").write_text(f"http://127.0.0.1:{slack}/services/T0/B0\n")
        (folder / "webhook").write_text(f"http://127.0.0.1:{slack}/hook\n")
        (folder / "slack").write_text(f"{TOKEN}\n")
        file = folder / "alertmanager.yaml"
        file.write_text(text)
        run("amtool", "check-config", file)
        words = [
            "prometheus-alertmanager", f"--config.file={file}", f"--storage.path={folder}",
            "--cluster.listen-address=", f"--web.listen-address=127.0.0.1:{world.port}",
        ]  # fmt: skip
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            until(world.ready, explain=lambda: (folder / "log").read_text())
            yield world
        finally:
            process.terminate()
            process.wait()


@needs("prometheus-alertmanager", "prometheus-alertmanager", "amtool")
def test_warnings_reach_slack_with_the_token_of_the_file(tmp_path: Path) -> None:
    with running(tmp_path, Alerts("ops {{ .X }}", "alerts/slack", None)) as world:
        world.fire(alertname="Watchdog", severity="none")
        world.fire(alertname="NearBudget", severity="info")
        world.fire(alertname="LaunchFails", severity="warning", environment="lab", about="gpu-west/quota")
        heard = {path: (token, body) for path, token, body in (world.heard.get(timeout=60) for _ in range(2))}
        with pytest.raises(Empty):
            world.heard.get(timeout=1)
    token, message = heard["/api/chat.postMessage"]
    assert token == f"Bearer {TOKEN}"
    assert message["channel"] == "ops {{ .X }}"
    assert heard["/services/T0/B0"][0] is None
    for _, body in heard.values():
        [shown] = body["attachments"]
        assert {"FIRING", "LaunchFails", "(lab)"} <= {word.rstrip(":") for word in shown["title"].split()}
        assert shown["text"].split("\n")[:2] == ["all is &lt;not&gt; well", "a &amp; b"]
    assert TOKEN not in (tmp_path / "alertmanager.yaml").read_text()


@needs("prometheus-alertmanager", "prometheus-alertmanager", "amtool")
def test_each_group_without_capacity_has_a_message_of_its_own(tmp_path: Path) -> None:
    with running(tmp_path, Alerts("ops", "alerts/slack", None)) as world:
        for group in ("gpu-west", "gpu-east"):
            world.fire(alertname="NoCapacity", severity="warning", group=group)
        heard = [world.heard.get(timeout=60)[0] for _ in range(4)]
        with pytest.raises(Empty):
            world.heard.get(timeout=1)
    assert sorted(heard) == ["/api/chat.postMessage"] * 2 + ["/services/T0/B0"] * 2


def _reads_webhooks() -> bool:
    try:
        done = subprocess.run(["amtool", "--version"], capture_output=True, text=True, check=True)
    except OSError:
        return False
    found = re.search(r"version 0\.(\d+)", done.stdout + done.stderr)
    return found is not None and int(found[1]) >= 26


def test_a_webhook_gets_alertmanagers_json(tmp_path: Path) -> None:
    if not _reads_webhooks():
        pytest.skip("needs Alertmanager 0.26 or newer: webhook_configs.url_file")
    with running(tmp_path, Alerts(None, None, "alerts/webhook")) as world:
        world.fire(alertname="LaunchFails", severity="critical")
        path, _, body = world.heard.get(timeout=60)
    assert path == "/hook"
    assert [each["labels"]["alertname"] for each in body["alerts"]] == ["LaunchFails"]
