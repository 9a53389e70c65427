"""Runs on machines: start, find, stop, resume."""

from __future__ import annotations

import getpass
import secrets
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from causeway import checkpoints
from causeway.checkpoints import Part, Policy
from causeway.errors import CausewayError
from causeway.job import Job, recorded, timed, written
from causeway.machines import records, state
from causeway.machines.placement import emptied, gpus_of, place, shortest_first, wanted
from causeway.machines.ssh import Host, at_once, hosts_named, tried
from causeway.machines.state import ENDED, Run
from causeway.saving import folder_of
from causeway.storage import MANIFESTS
from causeway.workers import (
    Workers,
    ends_when_idle,
    ends_when_stalled,
    ends_with,
    policy_of,
    variables,
    workers_of,
)

PRIORITIES = {"low": -1, "high": 1}
"""Priorities of jobs on machines; any other is 0."""


@dataclass(frozen=True)
class Given:
    """What a run gets in addition to its job and code."""

    secret: Mapping[str, str] = field(default_factory=dict)
    """Secret environment variables."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Values filled into its command."""
    exactly: Sequence[str] = ()
    """Package versions of a run that is repeated: ``numpy==2.4.6``."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Given:
        """Read it from a run's record."""
        return cls(record["secret"], record.get("parameters", {}), record.get("exactly", ()))


class Machines:
    """The machines of ``--on``, which answer and can run a worker."""

    def __init__(
        self, names: Sequence[str], workers: Sequence[Workers], job: Job, size: int, code: str = ""
    ) -> None:
        """Check all machines in parallel. ``size``: size in bytes of the code to send, ``code``: its digest.
        One error contains all problems."""
        self._hosts = {host.name: host for host in hosts_named(names)}
        self.checked = at_once(
            [*self._hosts.values()],
            lambda host: host.ask(
                "check", gpus=wanted(workers), uv=bool(job.python), bytes=3 * size, code=code
            ),
        )
        problems = [f"{name}: {each}" for name, said in self.checked.items() for each in said["problems"]]
        if problems:
            raise CausewayError("\n".join(problems))

    def host(self, name: str) -> Host:
        return self._hosts[name]

    @property
    def taken(self) -> list[str]:
        """Return the run names that this laptop remembers or one of the machines has."""
        return [*records.names(), *(name for said in self.checked.values() for name in said["runs"])]

    def roots(self, names: Sequence[str]) -> dict[str, str]:
        """Return one of these machines for each shared home: its identity → the first machine."""
        found: dict[str, str] = {}
        for name in names:
            found.setdefault(self.checked[name]["root"], name)
        return found

    def image(self, job: Job) -> str:
        """Return the image that workers run in; empty without podman. Raises CausewayError if machines
        differ."""
        having = [name for name, said in self.checked.items() if said["podman"]]
        if not job.image or not having:
            return ""
        if lacking := [name for name in self.checked if name not in having]:
            raise CausewayError(f"image: {job.image}: podman not found on {', '.join(lacking)}")
        return job.image


def start(
    job: Job, machines: Machines, placed: Mapping[str, str], archive: IO[bytes], digest: str, size: int,
    given: Given, name: str = "", *, waits: bool = False,
) -> tuple[str, bool]:  # fmt: skip
    """Start a new run on machines; return its name, and whether it is waiting for GPUs. If a machine fails,
    nothing is left of it.

    A given ``name`` is recorded on this laptop before the run is started. ``waits``: machines wait for GPUs
    that are taken; otherwise that is an error.
    """
    used = list(dict.fromkeys(placed.values()))
    roots = machines.roots(used)
    if name:
        records.remember(name, used)
        if not _claim(name, [machines.host(each) for each in roots.values()]):
            raise CausewayError(f"{name} exists on {', '.join(used)}")
    else:
        name = _claimed(job.name, machines, [*roots.values()])
    with ExitStack() as undo:
        undo.callback(_abandon, name, _workers_on(placed), 1, remove=True)
        record = _record(name, job, machines, placed, digest, 1, given, waits)
        for root in roots.values():
            archive.seek(0)
            kept = machines.checked[root]["code"]
            source, sent = (None, 0) if kept else (archive, size)
            machines.host(root).ask("deliver", source, run=name, record=record, size=sent)
        still = _begin(machines, name, placed, record)
        undo.pop_all()
    records.remember(name, used)
    return name, still


def placed_for(workers: Sequence[Workers], machines: Machines, *, waits: bool) -> dict[str, str]:
    """Return worker → machine. ``waits``: if GPUs are taken, use machines that have them. Raises
    CausewayError."""
    try:
        return place(workers, machines.checked)
    except CausewayError:
        if not waits:
            raise
        return place(workers, shortest_first(emptied(machines.checked)))


def resume(run: Run, machines: Machines, placed: Mapping[str, str], job: Job, *, waits: bool = False) -> bool:
    """Resume a run from its newest complete checkpoint, wherever that is. False if there is none. ``waits``:
    as for ``start``."""
    used = list(dict.fromkeys(placed.values()))
    number = run.record["start"] + 1
    roots = machines.roots([*machines.checked])
    kept = _share(run, machines, roots, Policy.of(run.record["policy"]))
    with ExitStack() as undo:
        undo.callback(_abandon, run.name, _workers_on(placed), number, remove=False)
        record = _record(
            run.name, job, machines, placed, run.record["code"], number, Given.of(run.record), waits
        )
        record["created"] = run.record["created"]
        for root in roots.values():
            machines.host(root).ask("deliver", run=run.name, record=record, size=0)
        _begin(machines, run.name, placed, record)
        undo.pop_all()
    records.remember(run.name, list(dict.fromkeys([*used, *machines.checked])))
    return kept


def check_job(job: Job, machines: Machines, placed: Mapping[str, str]) -> None:
    """Raise CausewayError for what machines do not support."""
    roots = machines.roots(list(dict.fromkeys(placed.values())))
    if job.checkpoints.sharded and len(roots) > 1:
        hosts = ", ".join(roots.values())
        raise CausewayError(
            f"checkpoints.sharded: {hosts} do not share a home, so no machine would have all parts"
        )
    if machines.image(job) and job.python:
        raise CausewayError("python: is installed on machines without a container; put it into the image")


def listed(hosts: Sequence[str]) -> tuple[list[Run], Mapping[str, CausewayError]]:
    """Return all runs of machines, the newest first, and the machines that do not answer."""
    answers, errors = tried(hosts_named(hosts), lambda host: host.ask("status", runs=[]))
    found = _newest(answers)
    # Runs that they share with others.
    others = {each["host"] for record in found.values() for each in record["workers"].values()} - {*hosts}
    more, faults = tried(
        [Host(name) for name in sorted(others)], lambda host: host.ask("status", runs=[*found])
    )
    runs = [_known(name, record, {**answers, **more}, {**errors, **faults}) for name, record in found.items()]
    return sorted(runs, key=lambda run: run.record["created"], reverse=True), errors


def _newest(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return run → its record, from the machine that knows the latest start."""
    found: dict[str, dict[str, Any]] = {}
    for said in answers.values():
        for each in said["runs"]:
            record = each["record"]
            if record["start"] >= found.get(record["run"], record)["start"]:
                found[record["run"]] = record
    return found


def find(name: str, on: Sequence[str]) -> Run:
    """Return one run. ``on``: machines that know it; by default, those that this laptop remembers."""
    hosts = list(on) or records.hosts_of(name) or []
    answers, errors = tried(hosts_named(hosts), lambda host: host.ask("status", runs=[name]))
    record = _newest(answers).get(name)
    if record is None:
        if errors:
            raise next(iter(errors.values()))
        raise CausewayError(f"no run {name} on {', '.join(hosts)}")
    others = [each for each in dict.fromkeys(_hosts(record)) if each not in hosts]
    more, faults = tried([Host(host) for host in others], lambda host: host.ask("status", runs=[name]))
    return _known(name, record, {**answers, **more}, {**errors, **faults})


def several(
    names: Sequence[str], on: Sequence[str], offsets: Mapping[str, int]
) -> tuple[dict[str, Run], dict[str, tuple[str, int]], Mapping[str, CausewayError]]:
    """Return runs as their machines know them; what ``causeway.report`` wrote from the byte offset in
    ``offsets`` on, and the offset of its end; machines that do not answer."""
    answers, errors = tried(
        hosts_named(on), lambda host: host.ask("status", runs=list(names), reports=dict(offsets))
    )
    found = _newest(answers)
    reports = {}
    for name, record in found.items():
        first = record["workers"][record["first"]]["host"]
        for each in answers.get(first, {"runs": ()})["runs"]:
            if each["record"]["run"] == name and "reports" in each:
                reports[name] = each["reports"], each["end"]
    runs = {name: _known(name, record, answers, errors) for name, record in found.items()}
    return runs, reports, errors


def clear(name: str, hosts: Sequence[str], workers: Sequence[str]) -> None:
    """Remove what an unfinished start has left and no machine has recorded."""
    _abandon(name, dict.fromkeys(hosts, workers), 1, remove=True)


def undo(run: Run) -> None:
    """Undo the last start of a run, which failed before its workers were started."""
    start = run.record["start"]
    _abandon(run.name, _workers_on({each.name: each.host for each in run.workers}), start, remove=start == 1)


def go_on(run: Run, seconds: int | None = None, *, waits: bool = False) -> bool:
    """``resume`` on the machines that it had. ``seconds``: the maximum run time."""
    job, workers = job_of(run)
    machines = Machines(run.hosts, workers, job, 0)
    placed = placed_for(workers, machines, waits=waits)
    return resume(run, machines, placed, timed(job, seconds), waits=waits)


def again(run: Run, job: Job, given: Given) -> tuple[str, bool]:
    """Start a new run with the code of another one, on the machines that were given for that one; as
    ``start``. It waits for its GPUs."""
    workers, digest = workers_of(job), str(run.record["code"])
    machines = Machines(job.on or run.hosts, workers, job, 0, digest)
    placed = placed_for(workers, machines, waits=True)
    with tempfile.TemporaryFile() as archive:
        if digest and not all(said["code"] for said in machines.checked.values()):
            copy_code(run, archive)
        size = archive.tell()
        return start(job, machines, placed, archive, digest, size, given, waits=True)


def copy_code(run: Run, archive: IO[bytes]) -> None:
    """Append the archive of a run's code to a file. Raises CausewayError if its machine does not have it."""
    with (
        sent(Host(_first(run)), run.name, "", ["code.tar.gz"]) as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        for each in tar:
            file = tar.extractfile(each)
            assert file is not None
            shutil.copyfileobj(file, archive)
            return
    raise CausewayError(f"the code of {run.name} is not on {_first(run)} any more")


@dataclass(frozen=True)
class Left:
    """What a run has left on its machines."""

    metrics: Mapping[str, str]
    """Worker → the end of its reports, and of its usage."""
    usage: Mapping[str, str]
    packages: Sequence[str]
    parts: Sequence[Part]
    """Parts of its checkpoints."""
    seconds: float
    """How long it ran, over all starts."""


def left(run: Run, *, metrics: int = 0, usage: int = 0, most: int = 0) -> Left:
    """Read what a run has left. ``metrics``, ``usage``: how many bytes of each worker to read, from the end;
    ``most``: of how many workers. Raises UnreachableError if a machine does not answer."""
    first = _first(run)
    if run.state in ENDED and not any(each.state == "running" for each in run.workers):
        # Includes what killed workers left complete.
        at_once([Host(first)], lambda host: host.ask("settle", run=run.name))
    wanted = {host: [each.name for each in run.workers[:most] if each.host == host] for host in run.hosts}
    answers = at_once(
        [Host(host) for host, names in wanted.items() if names or host == first],
        lambda host: host.ask("left", run=run.name, workers=wanted[host.name], metrics=metrics, usage=usage),
    )
    texts = {name: each for said in answers.values() for name, each in said["texts"].items()}
    return Left(
        {name: each["metrics"] for name, each in texts.items()},
        {name: each["usage"] for name, each in texts.items()},
        answers[first]["packages"],
        [Part.of(text) for text in answers[first]["parts"]],
        answers[first]["seconds"],
    )


def bring(run: Run, files: Sequence[str], folder: Path) -> None:
    """Copy files of the run's checkpoints, given by key, into a folder."""
    unpacked(Host(_first(run)), run.name, "kept", files, folder)


def unpacked(host: Host, run: str, of: str, files: Sequence[str], folder: Path) -> None:
    """Copy files of a folder of a run, or all, into a local folder. Raises CausewayError if only a part
    arrived."""
    folder.mkdir(parents=True, exist_ok=True)
    unpack = ["tar", "-x", "-f", "-", "-C", str(folder)]
    with sent(host, run, of, files) as stream, subprocess.Popen(unpack, stdin=subprocess.PIPE) as tar:
        assert tar.stdin is not None
        shutil.copyfileobj(stream, tar.stdin)
    if tar.returncode:
        raise CausewayError(f"the {of} of {run} on {host.name} is incomplete")


def _first(run: Run) -> str:
    """The machine of its first worker, which has its checkpoints."""
    host: str = run.record["workers"][run.record["first"]]["host"]
    return host


def stop(run: Run) -> bool:
    """Ask all workers to stop. False if none is running. Raises CausewayError if a machine does not
    answer."""
    by = f"{getpass.getuser()} on {socket.gethostname()}"
    answers = at_once([Host(name) for name in run.hosts], lambda host: host.ask("stop", run=run.name, by=by))
    return any(said["stopped"] for said in answers.values())


def homes(run: Run) -> list[str]:
    """Return its machines, one for each shared home."""
    answers = at_once([Host(name) for name in run.hosts], lambda host: host.ask("status", runs=[run.name]))
    found: dict[str, str] = {}
    for name, said in answers.items():
        found.setdefault(said["root"], name)
    return [*found.values()]


def job_of(run: Run) -> tuple[Job, tuple[Workers, ...]]:
    job = recorded(run.record["job"], run.name)
    return job, workers_of(job)


def _hosts(record: Mapping[str, Any]) -> list[str]:
    return [each["host"] for each in record["workers"].values()]


def _known(
    name: str, record: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]],
    errors: Mapping[str, CausewayError],
) -> Run:  # fmt: skip
    known = {
        host: {**each, "booted": said["booted"]}
        for host, said in answers.items()
        for each in said["runs"]
        if each["record"]["run"] == name and each["record"]["start"] == record["start"]
    }
    return state.run_of(name, record, known, {host: str(error) for host, error in errors.items()})


def _claimed(base: str, machines: Machines, hosts: Sequence[str]) -> str:
    """Choose a name that no machine has, and create its folder on each of these."""
    stem = f"{base}-{records.NAMED}"
    numbers = [int(end) for start, _, end in (name.rpartition("-") for name in machines.taken)
               if start == stem and end.isdigit()]  # fmt: skip
    number = max(numbers, default=0) + 1
    while not _claim(f"{stem}-{number}", [machines.host(each) for each in hosts]):
        number += 1
    return f"{stem}-{number}"


def _claim(name: str, hosts: Sequence[Host]) -> bool:
    """Create the folder on all machines, or on none."""
    answers = at_once(hosts, lambda host: host.ask("claim", run=name))
    claimed = [host for host in hosts if answers[host.name]["claimed"]]
    if len(claimed) < len(hosts):
        at_once(claimed, lambda host: host.ask("remove", run=name))
    return len(claimed) == len(hosts)


def _record(
    name: str, job: Job, machines: Machines, placed: Mapping[str, str], digest: str, number: int,
    given: Given, waits: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return what the run's machines have to know; it is the same on each."""
    workers = workers_of(job)
    addresses, control = _meet(machines, placed)
    now = time.time()
    hosts = {each.role: [addresses[f"{each.role}-{rank}"] for rank in range(each.count)] for each in workers}
    own = {
        f"{each.role}-{rank}": {
            "role": each.role,
            "rank": rank,
            "host": placed[f"{each.role}-{rank}"],
            "gpus": gpus_of(each.gpus),
            "script": each.launch.script,
            "env": {
                **job.env,
                **given.secret,
                **variables(name, job, each, hosts, {}),
                **ends_when_idle(job, each, workers),
                **ends_when_stalled(job, each, workers),
            },
        }
        for each in workers
        for rank in range(each.count)
    }
    leads = ends_with(workers)
    return {
        "run": name, "start": number, "job": written(job), "code": digest, "python": job.python,
        "image": machines.image(job), "created": now, "started": now, "seconds": job.time, "grace": job.grace,
        "waits": waits, "priority": PRIORITIES.get(job.priority or "", 0),
        "policy": policy_of(job, workers).text(), "first": f"{leads}-0", "token": secrets.token_hex(16),
        "decides": [worker for worker, each in own.items() if each["role"] == leads], "control": control,
        "secret": dict(given.secret), "parameters": dict(given.parameters), "exactly": list(given.exactly),
        "by": f"{getpass.getuser()} on {socket.gethostname()}", "workers": own,
    }  # fmt: skip


def _meet(machines: Machines, placed: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return worker → ``host:port``, and where the first worker's process listens: addresses that all other
    machines could connect to, and free ports. Raises CausewayError that names both ends."""
    hosts = [machines.host(name) for name in dict.fromkeys(placed.values())]
    with ExitStack() as stack:
        offers: dict[str, Any] = {}
        listening = []
        for host in hosts:
            count = [*placed.values()].count(host.name)
            process = stack.enter_context(host.asking("listen", ports=count))
            offers[host.name] = host.answer(process)
            listening.append((host, process))
        found = {host.name: "127.0.0.1" for host in hosts}
        if len(hosts) > 1:
            found = _tried_addresses(hosts, offers)
        for _, process in listening:
            assert process.stdin is not None
            process.stdin.close()
        for host, process in listening:
            host.answer(process)  # the ports are free again
    ports = {name: [*offer["ports"]] for name, offer in offers.items()}
    first = hosts[0].name
    control = {"host": found[first], "port": ports[first].pop()}  # the one that was tried
    return {worker: f"{found[name]}:{ports[name].pop()}" for worker, name in placed.items()}, control


def _tried_addresses(hosts: Sequence[Host], offers: Mapping[str, Any]) -> dict[str, str]:
    wanted = {
        host.name: {
            "addresses": list(dict.fromkeys([host.address, *offers[host.name]["addresses"]])),
            "port": offers[host.name]["ports"][-1],
            "word": offers[host.name]["word"],
        }
        for host in hosts
    }
    answers = at_once(
        hosts,
        lambda host: host.ask(
            "reach", machines={name: each for name, each in wanted.items() if name != host.name}
        ),
    )
    problems = [
        f"{one} cannot reach {other}, at {', '.join(wanted[other]['addresses'])}: a firewall between them?"
        for one, said in answers.items()
        for other, address in said["reached"].items()
        if address is None
    ]
    if problems:
        raise CausewayError("\n".join(problems))
    return {host.name: next(answers[each.name]["reached"][host.name] for each in hosts if each is not host)
            for host in hosts}  # fmt: skip


def _begin(machines: Machines, name: str, placed: Mapping[str, str], record: Mapping[str, Any]) -> bool:
    """Start all workers, and let them begin once all have their GPUs, or wait for them; return whether one is
    waiting. Raises CausewayError."""
    on = _workers_on(placed)
    hosts = [machines.host(each) for each in on]
    answers = at_once(hosts, lambda host: host.ask("start", run=name, workers=on[host.name]))
    problems = [
        f"{host}: {each['problem']}"
        for host, said in answers.items()
        for each in said["workers"].values()
        if "problem" in each
    ]
    if problems:
        raise CausewayError("\n".join(dict.fromkeys(problems)))
    said = at_once(hosts, lambda host: host.ask("go", run=name, start=record["start"], workers=on[host.name]))
    return any(each["waits"] for each in said.values())


def _workers_on(placed: Mapping[str, str]) -> dict[str, list[str]]:
    """Return machine → its workers."""
    found: dict[str, list[str]] = {}
    for worker, host in placed.items():
        found.setdefault(host, []).append(worker)
    return found


def _abandon(name: str, on: Mapping[str, Sequence[str]], start: int, *, remove: bool) -> None:
    """Undo a start as far as possible. ``on``: machine → its workers."""
    hosts = [Host(each) for each in on]
    # Homes may be shared: first make sure that nothing is running any more.
    tried(hosts, lambda host: host.ask("end", run=name, workers=list(on[host.name])))
    tried(hosts, lambda host: host.ask("remove" if remove else "back", run=name, start=start))


def _share(run: Run, machines: Machines, roots: Mapping[str, str], policy: Policy) -> bool:
    """Copy the newest complete checkpoint to all machines that do not have it. False if there is none."""
    hosts = [machines.host(name) for name in roots.values()]
    answers = at_once(hosts, lambda host: host.ask("settle", run=run.name))
    parts = {host: [Part.of(text) for text in said["parts"]] for host, said in answers.items()}
    whole = {
        host: {each.order: each for each in checkpoints.whole(found, policy.workers)}
        for host, found in parts.items()
    }
    newest = max((order for found in whole.values() for order in found), default=None)
    if newest is None:
        return False
    source = next(host for host, found in whole.items() if newest in found)
    files = [
        path
        for part in whole[source][newest].parts
        # A manifest marks a complete checkpoint, so it comes last.
        for path in (*(f"{folder_of(part)}{each.path}" for each in part.files),
                     f"{MANIFESTS}{part.worker}/{part.id}.json")
    ]  # fmt: skip
    for host, found in whole.items():
        if newest not in found:
            with sent(machines.host(source), run.name, "kept", files) as stream:
                machines.host(host).ask("receive", stream, run=run.name, folder="kept")
    return True


@contextmanager
def sent(host: Host, run: str, folder: str, files: Sequence[str]) -> Iterator[IO[bytes]]:
    with host.asking("send", run=run, folder=folder, files=list(files)) as process:
        assert process.stdout is not None
        yield process.stdout
