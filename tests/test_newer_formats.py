"""Files and records of a newer program: refused with both versions, or taken as far as they are known.

Which of the two holds for what is in docs/compatibility.md.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from golden_clusters import golden
from msgspec import structs
from stores import local_store

from causeway import __version__ as client
from causeway.checkpoints import File, Part, Policy
from causeway.errors import CausewayError as ClientError
from causeway.errors import InputError
from causeway.job import recorded
from causeway.jobfile import load as load_job
from infra import __version__
from infra.autoscaler import config, memory
from infra.drive import last_applied, shared_last_applied, workspace
from infra.drive.build_folders import Folders
from infra.drive.pki.backup import unpack
from infra.drive.pki.records import DamagedError, root_of
from infra.drive.state_backends import S3Place, Stored
from infra.drive.vpn.wireguard import Register
from infra.errors import CausewayError, UsageError
from infra.load import load
from infra.render.kubernetes.autoscaler import configuration
from infra.resolve import lockfile


class Bucket(S3Place):
    """A state's bucket, with what a newer program has stored beside it."""

    def get(self, key: str) -> Stored:
        return Stored(gzip.compress(b'{"version": 2, "records": []}'), "1")


def spec(folder: Path) -> None:
    (folder / "spec.yaml").write_text("version: 2\nname: lab\n")
    load(folder / "spec.yaml")


def build(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"version": 2, "files": {}}')
    workspace.owned(folder)


def applied(folder: Path) -> None:
    last_applied.remember(Folders(folder), {}, {"version": 2})
    last_applied.about(Folders(folder))


def ledger(folder: Path) -> None:
    place = Bucket({}, "states", "lab", "us-west-2")
    shared_last_applied.fetch(Folders(folder), place)


def secrets(folder: Path) -> None:
    store = local_store(folder)
    store.put("a", "b")
    file = Path(str(store))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 2}))
    store.get("a")


def device(folder: Path) -> None:
    store = local_store(folder)
    store.put("access/wireguard/devices/ada/0/1", '{"version": 2}')
    Register(store, lambda: datetime.now(UTC)).devices()


REFUSED: dict[str, Callable[[Path], object]] = {
    "spec": spec,
    "lock": lambda _: lockfile.parse("version: 2\n", "lab.lock.yaml"),
    "build folder": build,
    "last apply": applied,
    "last apply, in S3": ledger,
    "secrets store": secrets,
    "WireGuard device": device,
    "PKI": lambda _: root_of('{"version": 2}'),
    "backup of a PKI": lambda _: unpack(b'{"causeway pki backup": 2}', "x"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_newer_file_is_refused_with_both_versions(kind: str, tmp_path: Path) -> None:
    with pytest.raises((CausewayError, DamagedError)) as caught:
        REFUSED[kind](tmp_path)
    text = str(caught.value)
    assert "format is 2" in text
    assert f"Causeway {__version__} knows 1" in text


@pytest.mark.parametrize("version", ["2", None, [1]])
def test_a_version_that_is_not_a_number_is_damage(version: object, tmp_path: Path) -> None:
    last_applied.remember(Folders(tmp_path), {}, {"version": version})
    with pytest.raises(CausewayError) as caught:
        last_applied.about(Folders(tmp_path))
    assert "applied.json is damaged" in str(caught.value)


def test_a_newer_job_file_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("run: python a.py\nversion: 2\n")
    with pytest.raises(InputError) as caught:
        load_job(tmp_path / "job.yaml", {}, {})
    (problem,) = caught.value.problems
    assert (problem.where.rpartition(":")[2], problem.field) == ("2", "version")
    assert client in problem.hint


def test_the_job_of_a_newer_clients_run_is_refused_with_its_field() -> None:
    with pytest.raises(ClientError) as caught:
        recorded({"name": "a", "run": "x", "where": {"moon": True}}, "a-1")
    assert all(word in str(caught.value) for word in ("a-1", "where.moon", client))


def test_an_image_of_the_autoscaler_refuses_settings_it_does_not_know() -> None:
    text = json.dumps({**json.loads(configuration(golden("research"))), "lunar": True})
    with pytest.raises(UsageError) as caught:
        config.parse(text)
    assert "lunar" in str(caught.value)
    assert __version__ in str(caught.value)


def test_an_autoscaler_forgets_what_a_newer_one_remembers() -> None:
    kept = structs.replace(memory.Memory(idle={"node-1": 5.0}), version=2)
    assert memory.load(memory.dump(kept)) == memory.Memory()


def test_what_newer_programs_say_of_checkpoints_is_left_out() -> None:
    policy = Policy(("worker-0",), keep=3)
    part = Part("worker-0", "step-1", 1, (File("step-1", 1, "00", 5),))
    for one in (policy, part):
        values = json.loads(one.text()) | {"moon": 1}
        assert type(one).of(json.dumps(values)) == one
