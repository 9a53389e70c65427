"""The embedded AWS of an environment whose spec is not what it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.commands import embedded, planning, session
from infra.commands.environment import Environment, find
from infra.drive import last_applied, localaws
from infra.drive.build_folders import Folders
from infra.errors import SpecError, UsageError

SPEC = """\
version: 1
name: lab
domain: lab.internal
supernet: 10.0.0.0/12
aws: {embedded: true}
sites:
  us-west-2: {kind: aws}
images:
  cpu: {ubuntu: 24.04}
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "lab.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    environment = find("lab")
    yield environment
    localaws.stop(tmp_path / session.embedded_folder(environment))


def broken(environment: Environment) -> None:
    environment.spec_file.write_text(SPEC.replace("10.0.0.0/12", "10.0.0.0/99"), encoding="utf-8")


def test_a_spec_that_is_wrong_keeps_nobody_from_stopping_it(lab: Environment) -> None:
    embedded.up(lab)
    broken(lab)
    state = session.state_file(lab)
    state.write_text("{}", encoding="utf-8")
    assert embedded.status(lab, json=False) == 0
    assert embedded.down(lab) == 0
    assert not state.exists()
    assert embedded.status(lab, json=False) == 1
    state.write_text("{}", encoding="utf-8")
    assert embedded.reset(lab) == 0
    assert not state.exists()


def test_a_spec_that_is_wrong_is_told_where_nothing_was_ever_started(lab: Environment) -> None:
    broken(lab)
    with pytest.raises(SpecError, match=r"10\.0\.0\.0/99"):
        embedded.reset(lab)


def test_a_spec_that_is_wrong_does_not_give_a_real_state_away(lab: Environment) -> None:
    broken(lab)
    session.embedded_folder(lab).mkdir(parents=True)
    last_applied.remember(
        Folders(lab.build.absolute()), {}, {"spec": json.dumps({"aws": {"embedded": False}})}
    )
    session.state_file(lab).write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="lab"):
        embedded.reset(lab)
    assert session.state_file(lab).exists()


def test_a_site_that_is_not_there_is_told_before_anything_is_started(lab: Environment) -> None:
    with pytest.raises(UsageError, match=r"mean us-west-2\?"):
        planning.plan(lab, only=["us-west-1"], named=(), out="", json=False)
    assert not lab.build.exists()


def test_after_a_destroy_there_is_no_state_to_put_aside(
    lab: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    embedded.up(lab)
    state = session.state_file(lab)
    state.write_text('{"version": 4, "resources": []}', encoding="utf-8")
    assert embedded.down(lab) == 0
    assert "lost" not in capsys.readouterr().err
    assert state.exists()
