"""`invoke cluster.alert-secret`, and the Secret that Alertmanager mounts: a real secrets store."""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from stores import local_store

from infra.commands.cluster import alert_secrets
from infra.commands.environment import Project, find, load_project
from infra.drive.kubernetes.api import Api
from infra.drive.secrets.local import LocalStore
from infra.errors import UsageError
from infra.model.kubernetes import Alerts

SECRET = "/api/v1/namespaces/monitoring/secrets/alert-receivers"


class Objects:
    """An API that has these objects, by path."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def find(self, path: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.found.get(path)
        return found

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        self.found[f"{path}/{body['metadata']['name']}"] = dict(body)

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        data = {**self.found[path]["data"], **body["data"]}
        self.found[path]["data"] = {key: value for key, value in data.items() if value is not None}

    def delete(self, path: str) -> bool:
        return self.found.pop(path, None) is not None


def api(objects: Objects) -> Api:
    return cast("Api", objects)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return local_store(tmp_path, "lab")


def decoded(objects: Objects) -> dict[str, str]:
    return {key: base64.b64decode(text).decode() for key, text in objects.found[SECRET]["data"].items()}


def test_the_secret_follows_the_store_and_the_spec(store: LocalStore) -> None:
    objects = Objects()
    both = Alerts(slack="ops", slack_webhook=None, webhook="alerts/webhook")
    assert alert_secrets.put(api(objects), store, both) == ("none", ("slack", "webhook"))
    store.put("ops", "xoxb-1")
    assert alert_secrets.put(api(objects), store, both) == ("created", ("webhook",))
    assert decoded(objects) == {"slack": "xoxb-1"}
    store.put("ops", "xoxb-2")
    store.put("alerts/webhook", "https://hooks.example/x")
    assert alert_secrets.put(api(objects), store, both) == ("updated", ())
    assert decoded(objects) == {"slack": "xoxb-2", "webhook": "https://hooks.example/x"}
    assert alert_secrets.put(api(objects), store, both)[0] == "unchanged"
    alert_secrets.put(api(objects), store, Alerts("ops", None, None))
    assert decoded(objects) == {"slack": "xoxb-2"}
    assert alert_secrets.put(api(objects), store, Alerts(None, None, None))[0] == "deleted"
    assert not objects.found


LAB = """\
version: 1
name: lab
domain: lab.internal
sites:
  us-west-2: {kind: aws}
images:
  cpu: {ubuntu: 24.04}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 4}}}
kubernetes: {alerts: {slack: ops, webhook: hook}}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "lab.yaml").write_text(LAB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return load_project(find("lab"), changeable=True)


def test_what_is_piped_in_is_kept_and_never_shown(
    lab: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from infra.commands import pki_store

    monkeypatch.setattr(sys, "stdin", io.StringIO("xoxb-0-made-up\n"))
    assert alert_secrets.keep(lab, "slack") == 0
    assert pki_store.store(lab).get("ops") == "xoxb-0-made-up"
    out = capsys.readouterr()
    assert "made-up" not in out.out + out.err


@pytest.mark.parametrize(
    ("receiver", "typed", "says"),
    [
        ("slack_webhook", "", "slack_webhook"),
        ("slack", "", "given"),
        ("slack", "https://hooks.example/made-up", "xox"),
        ("webhook", "xoxb-made-up", "https"),
        ("webhook", "https://hooks.example/made-up two", "space"),
    ],
)
def test_what_is_certainly_wrong_is_refused_without_showing_it(
    lab: Project, monkeypatch: pytest.MonkeyPatch, receiver: str, typed: str, says: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    with pytest.raises(UsageError, match=says) as caught:
        alert_secrets.keep(lab, receiver)
    assert "made-up" not in str(caught.value)
