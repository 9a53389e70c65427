"""Which account a state is of, and where it may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from infra.commands import states
from infra.commands.environment import Project, applied, find, load_project
from infra.drive import last_applied
from infra.drive.build_folders import Folders
from infra.drive.engine import Engine
from infra.drive.lifecycle import Job
from infra.errors import SpecError, UsageError

SPEC = """\
version: 1
name: lab
domain: lab.internal
sites:
  us-west-2: {kind: aws}
images:
  cpu: {ubuntu: 24.04}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-west-2: {max: 4}}}
"""


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An environment on real AWS, with a local state."""
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "lab.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    return load_project(find("lab"))


def test_a_local_state_is_a_warning_and_in_ci_an_error(
    real: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states.local_state(real)
    assert "[STO026]" in capsys.readouterr().err
    monkeypatch.setenv("CI", "true")
    with pytest.raises(SpecError) as caught:
        states.local_state(real)
    (problem,) = caught.value.problems
    assert (problem.code, problem.path, problem.fatal) == ("STO026", "state", True)
    states.local_state(load_project(find("lab", rehearsed=True)))


def test_another_account_than_that_of_the_first_apply_is_refused(real: Project) -> None:
    folders = Folders(real.environment.build.absolute())
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        env = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        engine = Engine("terraform", "1.11.4", ("terraform",))
        job = Job("lab", folders.build, engine, {}, spec="", lock="", env=env)
        assert states.same_account(real, job).account == "123456789012"
        # A first apply that failed half-way is known by its account alone.
        last_applied.remember(folders, {}, {"account": "123456789012", "begun": True})
        assert states.same_account(real, job).account == "123456789012"
        assert applied(real.environment) is None
        last_applied.remember(folders, {}, {"account": "000000000000", "begun": True})
        with pytest.raises(UsageError, match=r"123456789012.*000000000000"):
            states.same_account(real, job)
    finally:
        server.stop()
