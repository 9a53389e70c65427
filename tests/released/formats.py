"""The formats of files that outlive a version: how each is written today, and what is read in it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Final
from unittest.mock import Mock, patch

import msgspec
from autoscaler.make import NOW, group, titans
from autoscaler.reporting.test_availability import published, queued, queues
from drive.pki.pki_lab import PASSPHRASE, START, Clock, Memory
from golden_clusters import golden

from causeway import local
from causeway.checkpoints import File, Part, Policy
from causeway.cluster import availability, labels, offer, runs, sweeps
from causeway.cluster.fit import fit
from causeway.cluster.jobset import Submission, jobset
from causeway.code.source import Source
from causeway.job import Job, recorded
from causeway.jobfile import load as load_job
from causeway.machines import runs as machine_runs
from causeway.machines import state
from causeway.tracking import record, searches
from causeway.workers import workers_of
from infra import __version__
from infra.autoscaler import config
from infra.autoscaler import memory as memories
from infra.autoscaler.memory import Backoff, Booking, Drain, Resize
from infra.catalogue import labels as node_labels
from infra.drive import last_applied, shared_last_applied, workspace
from infra.drive.build_folders import Folders
from infra.drive.machines import report
from infra.drive.pki import Pki
from infra.drive.state_backends import S3Place, Stored
from infra.drive.vpn import wireguard
from infra.render.kubernetes import autoscaler, research
from infra.resolve import lockfile

FOLDER: Final = Path(__file__).parent
EXAMPLES: Final = FOLDER / "jobs"
"""Job files that use each field: those of a release."""
ROLES: Final = {"user-ada": "arn:aws:iam::123456789012:role/research-user-ada"}


@dataclass(frozen=True)
class Format:
    """``write``: its text today, ``read``: what a file says, as plain values."""

    write: Callable[[], str | bytes]
    read: Callable[[Path], Any]


def plain(value: Any) -> Any:
    """What JSON has of it: keys are text, and what has no form of its own is text."""
    return json.loads(msgspec.json.encode(msgspec.to_builtins(value, enc_hook=str, str_keys=True)))


def _applied() -> str:
    about = {
        "environment": "lab", "causeway": __version__, "applied": "2026-11-28T00:00:00+00:00", "spec": "{}",
        "account": "123456789012", "state": {"lineage": "one", "serial": 7},
    }  # fmt: skip
    with TemporaryDirectory() as folder:
        last_applied.remember(Folders(Path(folder)), {}, about)
        return (Folders(Path(folder)).applied / "applied.json").read_text(encoding="utf-8")


def _read_applied(file: Path) -> Any:
    with TemporaryDirectory() as folder:
        place = Folders(Path(folder)).applied
        place.mkdir(parents=True)
        (place / "applied.json").write_bytes(file.read_bytes())
        return last_applied.about(Folders(Path(folder)))


class _Bucket(S3Place):
    """A bucket of states that has at most one object."""

    def __init__(self, data: bytes = b"") -> None:
        super().__init__({}, "states", "lab", "us-west-2")
        self.data = data

    def get(self, key: str) -> Stored | None:
        return Stored(self.data, "1") if self.data else None

    def put(self, key: str, data: bytes, replacing: Stored | None) -> None:
        self.data = data


def _ledger() -> bytes:
    bucket = _Bucket()
    with TemporaryDirectory() as folder:
        files = {"terraform/main.tf": "# 1\n"}
        last_applied.remember(Folders(Path(folder)), files, {"state": {"lineage": "one", "serial": 7}})
        shared_last_applied.publish(Folders(Path(folder)), bucket)
    return gzip.decompress(bucket.data)


def _read_ledger(file: Path) -> Any:
    with TemporaryDirectory() as folder:
        shared_last_applied.fetch(Folders(Path(folder)), _Bucket(gzip.compress(file.read_bytes())))
        return plain(last_applied.recall(Folders(Path(folder))))


def _manifest() -> str:
    with TemporaryDirectory() as folder:
        workspace.write(Path(folder), {"terraform/main.tf": "# 1\n"})
        return (Path(folder) / "manifest.json").read_text(encoding="utf-8")


def _read_manifest(file: Path) -> Any:
    with TemporaryDirectory() as folder:
        (Path(folder) / "manifest.json").write_bytes(file.read_bytes())
        return workspace.owned(Path(folder))


def _pki() -> bytes:
    pki = Pki(Memory(), domain="lab.internal", clock=Clock())
    pki.create(PASSPHRASE, "lab")
    pki.client("ada")
    pki.client("grace", "phone")
    pki.revoke("grace")
    pki.server("us-west-2", ["vpn.us-west-2.lab.internal"])
    return pki.backup(PASSPHRASE)


def _read_pki(file: Path) -> Any:
    pki = Pki(Memory(), domain="lab.internal", clock=Clock(START + timedelta(days=1)))
    pki.restore(file.read_bytes(), PASSPHRASE)
    return [
        [str(each.serial), each.name, str(each.kind), each.user, each.revoked is not None]
        for each in sorted(pki.certificates(), key=lambda one: one.serial)
    ]


_DEVICE: Final = "access/wireguard/devices/ada/0/1"


def _device() -> str:
    key = wireguard.public_key(wireguard.new_private_key())
    return wireguard._record(wireguard.Device("ada", "phone", 0, 1, key, START, START + timedelta(days=90)))


def _read_device(file: Path) -> Any:
    (device,) = wireguard.Register(Memory({_DEVICE: file.read_text(encoding="utf-8")}), Clock()).devices()
    return plain(device)


def _configuration() -> str:
    return autoscaler.configuration(golden("research"))


def _memory() -> str:
    return memories.dump(
        memories.Memory(
            backoffs={"gpu/us-west-2a": Backoff("capacity", "none", 1.0, 2.0, 300.0, 1)},
            resizes={"gpu": Resize(1.0, 0, 2)},
            idle={"node-1": 5.0},
            drains={"node-2": Drain("gpu", "i-0123", "tainted", 1.0, 1.0, "idle")},
            bookings={"train": Booking(("gpu#1",), 9.0)},
        )
    )


def _report() -> str:
    return json.dumps({
        "started": "2026-11-28T00:00:00Z", "ended": "2026-11-28T00:02:00Z", "success": True, "why_run": False,
        "updated": ["service[chrony]"], "total": 200, "exception": None, "chef": "18.7.10",
        "cookbooks": {"base": "0.1.0"}, "inputs": "0123",
    })  # fmt: skip


def _contract() -> str:
    text = research.objects(golden("research"))["cluster.yaml"][0]["data"]["cluster.json"]
    found = json.loads(text)
    return json.dumps({**found, "store": {**found["store"], "roles": ROLES}})


def _availability() -> str:
    waiting = queues(queued("a", gpus=8), queued("b", priority=5), titan=4)
    bar = Backoff("capacity", "none", NOW, NOW, NOW + 300, 1)
    kept = memories.Memory(backoffs={group().name: bar})
    return json.dumps(published(memory=kept, nodes=titans(2), queues=waiting))


def _read_availability(file: Path) -> Any:
    found = asdict(availability.parse(_read_json(file), datetime(2026, 11, 28, tzinfo=UTC)))
    return plain({**found, "machines": [[*key, row] for key, row in found["machines"].items()]})


def _read_json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _job() -> Job:
    return load_job(EXAMPLES / "every-field.yaml", {}, {"lr": "0.1"}).job


def _local_run() -> str:
    with TemporaryDirectory() as folder:
        local.submit_here(_job(), None, "", Path(folder), {"lr": "0.1"}, ["numpy==2.4.6"])
        return json.dumps(local.record_of(Path(folder)))


def _read_local_run(file: Path) -> Any:
    record = _read_json(file)
    return {**record, "job": recorded(record["job"], "a run").model_dump(mode="json", by_alias=True)}


def _machine_run() -> str:
    job = Job.model_validate({"name": "x", "run": "python t.py", "gpus": 2, "restarts": 1})
    found = {"worker-0": "10.200.0.11:20001"}, {"host": "10.200.0.11", "port": 20000}
    with patch.object(machine_runs, "_meet", return_value=found):
        machines, given = Mock(image=lambda _: ""), machine_runs.Given()
        placed = {"worker-0": "titan-01"}
        return json.dumps(machine_runs._record("x-on-1", job, machines, placed, "", 1, given, waits=False))


def _read_machine_run(file: Path) -> Any:
    run = state.run_of("x-on-1", _read_json(file), {}, {"titan-01": "away"})
    return plain(asdict(run)), machine_runs.job_of(run)[0].model_dump(mode="json", by_alias=True)


def _jobset() -> str:
    found = offer.parse(json.loads(_contract()))
    job = Job.model_validate({"name": "x", "run": "python t.py --lr 0.1", "gpus": 2, "env": {"SEED": "1"}})
    fits = [fit(job, each, found) for each in workers_of(job)]
    made = jobset(Submission("x-1", "user-ada", "ada", job, fits, found, "", given={"lr": "0.1"}))
    made["metadata"] |= {"uid": "0", "creationTimestamp": "2026-11-28T00:00:00Z"}
    return json.dumps(made)


def _read_jobset(file: Path) -> Any:
    run = runs._run(_read_json(file), [], None, lambda _: (None, None, None))
    return plain(asdict(run)), recorded(run.job, run.name).model_dump(mode="json", by_alias=True)


def _search() -> str:
    job = load_job(EXAMPLES / "sweep.yaml", {}, {}).job
    order = sweeps.Order("x-s1", job, "", "ada", Source("0123", "main", "", 0))
    made: list[Any] = []

    def call(_: str, __: str, body: Any) -> Any:
        made.append(body)
        about = {"run_id": "1", "experiment_id": "1", "start_time": 1}
        return {"run": {"info": about, "data": {"tags": body.get("tags", [])}}, "experiment_id": "1"}

    with patch.object(searches, "experiment_of", return_value="1"):
        searches.begin(call, "x-s1", "x", order.plain(), {})
    return json.dumps(call("", "", made[-1])["run"])


def _read_search(file: Path) -> Any:
    whole = searches.whole_of(_read_json(file))
    job = sweeps.Order.of(whole).job
    return plain(asdict(whole)), job.model_dump(mode="json", by_alias=True)


def _part() -> str:
    files = (File("step-1/model.pt", 5, "00" * 32, 1_700_000_000_000_000_000),)
    return Part("worker-0", "step-1", 2, files, {"loss": 0.5}, 3, "rack-a").text()


def _tracking() -> str:
    return record.Record("http://mlflow", "user-ada", "1", "x", "worker-0", {"lr": "0.1"}, {"a": "b"}).text()


FORMATS: Final = {
    "applied.json": Format(_applied, _read_applied),
    "ledger.json": Format(_ledger, _read_ledger),
    "manifest.json": Format(_manifest, _read_manifest),
    "pki-backup.json": Format(_pki, _read_pki),
    "wireguard-device.json": Format(_device, _read_device),
    "autoscaler-config.json": Format(_configuration, lambda file: plain(config.read(file))),
    "autoscaler-memory.json": Format(_memory, lambda file: plain(memories.load(file.read_bytes()))),
    "converge-report.json": Format(_report, lambda file: plain(report.parse(_read_json(file)))),
    "cluster.json": Format(_contract, lambda file: plain(offer.parse(_read_json(file)))),
    "availability.json": Format(_availability, _read_availability),
    "local-run.json": Format(_local_run, _read_local_run),
    "machine-run.json": Format(_machine_run, _read_machine_run),
    "jobset.json": Format(_jobset, _read_jobset),
    "search.json": Format(_search, _read_search),
    "checkpoint.json": Format(_part, lambda file: plain(asdict(Part.of(file.read_text(encoding="utf-8"))))),
    "checkpoints-policy.json": Format(
        lambda: Policy(("worker-0",), 3, "loss", maximize=False, every=600).text(),
        lambda file: plain(asdict(Policy.of(file.read_text(encoding="utf-8")))),
    ),
    "tracking.json": Format(
        _tracking, lambda file: plain(asdict(record.Record.of(file.read_text(encoding="utf-8"))))
    ),
}
"""Name of the file → how it is written and read."""


def labels_of(*modules: ModuleType) -> list[str]:
    """Names of labels, annotations and taints: the constants of modules that have our domain."""
    values = (value for module in modules for value in vars(module).values())
    return sorted({value for value in values if isinstance(value, str) and value.startswith("causeway.dev/")})


def names() -> list[str]:
    """All of ours that other programs may go by."""
    return labels_of(labels, node_labels)


def read_job(file: Path) -> Any:
    """A job file, with its defaults."""
    given = {"lr": "0.1"} if "{lr}" in file.read_text(encoding="utf-8") else {}
    return load_job(file, {}, given).job.model_dump(mode="json", by_alias=True)


def lock_of(file: Path) -> Any:
    """A lock file."""
    return plain(lockfile.parse(file.read_text(encoding="utf-8"), str(file)))
