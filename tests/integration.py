"""Integration tests by area: what `tests/integration.toml` declares, which areas are stale, and running them.

`make stale` and `make integration` call this module; ``tests/conftest.py`` asks it which tests are
integration tests. An area's record in `tests/integration-results.json` is fresh while the files that the area
is about are those of its last pass, and that pass had every tool that this machine has.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DECLARATION = "tests/integration.toml"
RESULTS = "tests/integration-results.json"

MOST_RETRIED = 5
"""More failures than these are not a missed deadline: they are reported without a second attempt."""
MOST_TIMES = 4
"""An area is interrupted after so many times its minutes."""
QUARANTINE = "in quarantine"
"""How the reason of a test's expected failure begins that ``tests/conftest.py`` lets fail."""


@dataclass(frozen=True)
class Area:
    """One table of `tests/integration.toml`; its head says what each key means."""

    name: str
    purpose: str
    minutes: float
    workers: int
    tools: tuple[str, ...]
    about: tuple[str, ...]
    tests: Mapping[str, str]

    def has(self, nodeid: str) -> bool:
        return any(_expression(pattern).match(nodeid) for pattern in self.tests)

    def files(self, root: Path) -> list[str]:
        """Its test files, in the order in which they start."""
        found = (path for pattern in self.tests for path in _glob(root, pattern.partition("::")[0]))
        return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Record:
    """An area's last pass. ``seconds`` of wall time; ``skipped``: reason → number of tests; ``retried`` and
    ``quarantined``: tests that failed without failing the area."""

    hash: str
    date: str
    seconds: int
    passed: int
    skipped: Mapping[str, int]
    retried: Sequence[str]
    quarantined: Sequence[str]
    tools: Sequence[str]


@dataclass
class Outcome:
    """What pytest reported. A test that is run again has its last outcome."""

    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    quarantined: set[str] = field(default_factory=set)
    not_collected: bool = False
    """A file could not be imported, or a worker died: nothing says which tests are missing."""

    def merge(self, again: Outcome) -> None:
        """What a second attempt at some files adds."""
        self.passed |= again.passed
        self.skipped |= again.skipped
        self.quarantined |= again.quarantined


def declared(root: Path = ROOT) -> dict[str, Area]:
    """Name → area, in the order of the file."""
    tables = tomllib.loads((root / DECLARATION).read_text(encoding="utf-8"))
    return {
        name: Area(
            name=name,
            purpose=table["for"],
            minutes=table["minutes"],
            workers=table.get("workers", 2),
            tools=tuple(table.get("tools", ())),
            about=tuple(table["about"]),
            tests=table["tests"],
        )
        for name, table in tables.items()
    }


def area_of(nodeid: str) -> str | None:
    """The area of a test; None for one that `make test` runs."""
    return next((area.name for area in _declared().values() if area.has(nodeid)), None)


@cache
def _declared() -> dict[str, Area]:
    return declared()


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    """A file with all its tests, or one test with all its parameters; ``*`` stands for anything."""
    file, separator, name = pattern.partition("::")
    path = "[^/]*".join(re.escape(word) for word in file.split("*"))
    test = ".*".join(re.escape(word) for word in name.split("*"))
    return re.compile(rf"{path}{separator}{test}(?:(?:::|\[).*)?$")


def _glob(root: Path, pattern: str) -> list[str]:
    found = sorted(root.glob(pattern))
    return [path.relative_to(root).as_posix() for path in found if path.name.startswith("test_")]


# -- Fresh and stale --------------------------------------------------------------------------------------


def fingerprint(area: Area, root: Path = ROOT) -> str:
    """A digest over the names and contents of an area's tests and of the files that it is about, as git sees
    them: what is ignored does not count, nor do other tests that stand beside its own."""
    patterns = [f":(glob){pattern}" for pattern in area.about]
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    about = {name for name in listed if name and not Path(name).name.startswith("test_")}
    digest = hashlib.sha256("\n".join(area.tests).encode())
    for name in sorted(about | set(area.files(root))):
        path = root / name
        if path.is_symlink():
            digest.update(f"\n{name} -> {path.readlink()}".encode())
        elif path.is_file():
            digest.update(f"\n{name} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
    return digest.hexdigest()[:16]


def present(tools: Iterable[str]) -> list[str]:
    """Those of an area's tools that this machine has: programs by name or by their path in the checkout;
    ``$NAME``, a variable that names an existing path; ``root``, to be root."""
    folders = [os.environ.get("KUBEBUILDER_ASSETS", ""), str(ROOT / ".venv-tools/bin"), os.environ["PATH"]]
    path = os.pathsep.join([*filter(None, folders), "/usr/sbin", "/sbin", "/usr/lib/frr"])

    def is_here(tool: str) -> bool:
        if tool == "root":
            return os.geteuid() == 0
        if tool.startswith("$"):
            return (named := os.environ.get(tool[1:], "")) != "" and Path(named).exists()
        if "/" in tool:
            return (ROOT / tool).exists()
        return shutil.which(tool, path=path) is not None

    return [tool for tool in tools if is_here(tool)]


def records(root: Path = ROOT) -> dict[str, Record]:
    path = root / RESULTS
    if not path.exists():
        return {}
    return {name: Record(**values) for name, values in json.loads(path.read_text(encoding="utf-8")).items()}


def why_stale(area: Area, record: Record | None, root: Path = ROOT) -> str:
    """Why an area has to run, or nothing."""
    if record is None:
        return "never passed"
    if record.hash != fingerprint(area, root):
        return "its files changed"
    if new := [tool for tool in present(area.tools) if tool not in record.tools]:
        return f"passed without {', '.join(new)}"
    return ""


def stale_lines(root: Path = ROOT) -> list[str]:
    """What `make stale` prints: stale areas with their minutes, then fresh ones with tests that were
    skipped."""
    known = records(root)
    areas = declared(root)
    reasons = {name: why_stale(area, known.get(name), root) for name, area in areas.items()}
    lines = [
        f"stale  {name:<11} {areas[name].minutes:>4g} min  {reason}"
        for name, reason in reasons.items()
        if reason
    ]
    for name, record in known.items():
        if name in areas and not reasons[name] and record.skipped:
            lines.append(f"fresh  {name:<11} {sum(record.skipped.values()):>4} tests skipped")
            lines += [f"{count:>23}  {reason}" for reason, count in record.skipped.items()]
    total = sum(areas[name].minutes for name, reason in reasons.items() if reason)
    lines.append(f"{total:g} minutes of integration tests are stale" if total else "no area is stale")
    return lines


# -- Running ----------------------------------------------------------------------------------------------


def run(area: Area, root: Path = ROOT) -> Record | None:
    """Set an area's tools up, run its tests, and the files of those that failed once more, alone. None: it
    did not pass."""
    set_up = ["make", "--silent", f"setup-{area.name}"]
    if (root / "Makefile").exists() and subprocess.run(set_up, cwd=root, check=False).returncode:
        print(f"{area.name}: '{' '.join(set_up)}' failed", file=sys.stderr)
        return None
    before, began = fingerprint(area, root), time.monotonic()
    options = ["--numprocesses", str(area.workers), "--durations", "5"]
    outcome, code = _pytest([*options, *area.files(root)], area, root)
    failed = sorted(outcome.failed)
    if failed and code == 1 and len(failed) <= MOST_RETRIED and not outcome.not_collected:
        print(f"\n{area.name}: {len(failed)} failed; their files run once more, alone", flush=True)
        # Whole files: some tests go on with what those before them made.
        again, code = _pytest(list(dict.fromkeys(each.partition("::")[0] for each in failed)), area, root)
        if not set(failed) <= again.passed | again.quarantined:
            return None
        if code == 1 and not again.not_collected and again.failed <= outcome.passed:
            # Each has passed once: no test failed twice.
            failed, code = sorted({*failed, *again.failed}), 0
        outcome.merge(again)
    if code != 0 or outcome.not_collected or not outcome.passed | set(outcome.skipped):
        return None
    if fingerprint(area, root) != before:
        print(f"{area.name}: its files changed while its tests ran, so no pass is recorded", file=sys.stderr)
        return None
    return Record(
        hash=before,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        seconds=round(time.monotonic() - began),
        passed=len(outcome.passed),
        skipped=dict(sorted(Counter(outcome.skipped.values()).items())),
        retried=failed,
        quarantined=sorted(outcome.quarantined),
        tools=present(area.tools),
    )


def _pytest(arguments: Sequence[str], area: Area, root: Path) -> tuple[Outcome, int]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "report.jsonl"
        command = [sys.executable, "-m", "pytest", "-m", "integration", "--report-log", str(log), *arguments]
        # A person's `-k` or `-x` would make a part of the area its pass.
        env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        around = _container()
        process = subprocess.Popen([*around, *command], cwd=root, env=env)
        code = _ended(process, MOST_TIMES * 60 * area.minutes, depth=2 if around else 0)
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return _outcome(json.loads(line) for line in lines), code


def _container() -> tuple[str, ...]:
    """What goes before a command so that nothing outlives it, nor us: no VM, daemon, mount or named network
    namespace. A PID and a mount namespace (unshare(1), ``--kill-child``), with a shell as the first process,
    which collects zombies. Nothing where that takes rights that we lack."""
    if os.geteuid() or not all(map(shutil.which, ("setpriv", "unshare"))):
        return ()
    spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ("setpriv", "--pdeathsig", "KILL", "--", *spaces, "--", "sh", "-c", '"$@"; exit $?', "sh")


def _ended(process: subprocess.Popen[bytes], seconds: float, depth: int) -> int:
    """Its exit code. A process that is interrupted, or takes longer, has the time to end what it started.
    ``depth``: how many of our own processes stand between it and its command.

    Raises:
        KeyboardInterrupt: We were interrupted or terminated, and it has ended.
    """
    interrupted = False

    def interrupt() -> None:
        pid = process.pid
        for _ in range(depth):
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()[0])
        os.kill(pid, signal.SIGINT)

    def end(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        interrupt()

    before = signal.signal(signal.SIGTERM, end)
    deadline = time.monotonic() + seconds
    try:
        while True:
            try:
                code = process.wait(max(0, deadline - time.monotonic()))
            except KeyboardInterrupt:  # the terminal sends it to all processes
                interrupted = True
            except subprocess.TimeoutExpired:
                print(f"\ninterrupted after {seconds / 60:.0f} minutes", file=sys.stderr, flush=True)
                interrupt()
                deadline += seconds
            else:
                break
    finally:
        signal.signal(signal.SIGTERM, before)
    if interrupted:
        raise KeyboardInterrupt
    return code


def _outcome(entries: Iterable[Mapping[str, Any]]) -> Outcome:
    outcome = Outcome()
    for entry in entries:
        kind, nodeid, result = entry.get("$report_type"), entry.get("nodeid", ""), entry.get("outcome")
        if kind == "CollectReport" and result == "failed":
            outcome.not_collected = True
        if kind != "TestReport":
            continue
        if result == "failed":
            outcome.failed.add(nodeid)
            outcome.passed.discard(nodeid)
        elif result == "skipped" and str(entry.get("wasxfail", "")).startswith(QUARANTINE):
            outcome.quarantined.add(nodeid)
        elif result == "skipped" and "wasxfail" not in entry:
            outcome.skipped[nodeid] = str(entry["longrepr"][2]).removeprefix("Skipped: ")
        elif entry.get("when") == "call":
            outcome.passed.add(nodeid)
    return outcome


def run_stale(only: str | None, every: bool, minutes: float | None, root: Path = ROOT) -> int:
    """Run areas and record those that pass: one of them, every one, or the stale ones. Within ``minutes``, an
    area that would not fit is named and left stale. The exit code is 1 if an area failed."""
    known = records(root)
    began = time.monotonic()
    failed: list[str] = []
    left: list[str] = []
    for area in declared(root).values():
        chosen = area.name == only if only else every or why_stale(area, known.get(area.name), root)
        if not chosen:
            continue
        spent = (time.monotonic() - began) / 60
        if minutes is not None and spent + area.minutes > minutes:
            left.append(area.name)
            continue
        print(f"\n{area.name}: {area.purpose} (about {area.minutes:g} minutes)", flush=True)
        record = run(area, root)
        if record is None:
            failed.append(area.name)
        else:
            _keep(area.name, record, root)
    print()
    print("\n".join(stale_lines(root)))
    if left:
        print(f"left stale, would not finish within {minutes:g} minutes: {', '.join(left)}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _keep(name: str, record: Record, root: Path) -> None:
    order = list(declared(root))
    kept = {**records(root), name: record}
    values = {each: asdict(kept[each]) for each in sorted(kept.keys() & set(order), key=order.index)}
    path = root / RESULTS
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stale", action="store_true", help="list the areas that would run, and run nothing")
    parser.add_argument("--area", choices=list(declared(root)), help="run this area, stale or not")
    parser.add_argument("--all", action="store_true", help="run all areas, stale or not")
    parser.add_argument("--minutes", type=float, help="leave an area stale that would not end within these")
    options = parser.parse_args(arguments)
    try:
        if options.stale:
            print("\n".join(stale_lines(root)))
            return 0
        return run_stale(options.area, options.all, options.minutes, root)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (subprocess.CalledProcessError, json.JSONDecodeError) as problem:
        print(f"{RESULTS} or git's list of files can't be read: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
