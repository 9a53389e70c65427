"""The burn-in: DCGM's diagnostics and an all-reduce, before a machine takes work, and what came of them.

DCGM's JSON has no stable schema (NVIDIA, "Diagnostic Errors"): this reads that of DCGM 4 (dcgmi/Diag.cpp).
What it skips is kept as skipped: GPUs that are not made for data centers have level 1 only, unless DCGM knows
the product (diag-skus.yaml has the GTX TITAN X of Maxwell, and not the TITAN X of Pascal).
"""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpu_health import cluster, smi
from gpu_health.files import replace
from gpu_health.findings import Fault, Findings, Gpu, Weight
from gpu_health.report import stamp
from gpu_health.settings import Settings

LEVELS = {1: 10, 2: 30, 3: 120, 4: 360}
"""DCGM's levels, and the minutes that each may take: several times of what NVIDIA expects (dcgmi-diag)."""

PASSED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""

_ALL_REDUCE = 600
"""Seconds."""

_ISOLATE, _RESET = 2, 6
"""Severities with which a GPU should not be used (dcgm_errors.h: DCGM_ERROR_ISOLATE, DCGM_ERROR_RESET)."""

_REBOOT = Path("/run/reboot-required")
"""With the driver, which replaces nouveau."""

_GPU = 1  # dcgm_fields.h: DCGM_FE_GPU


class RefusedError(Exception):
    """Why it can't begin."""


class Interrupted(BaseException):
    """A person ended it, or what they started it from was lost."""


@dataclass
class Test:
    """One of the tests. ``result`` is ``pass``, ``warn``, ``fail`` or ``skip``."""

    name: str
    result: str
    messages: list[str] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    """UUIDs of the GPUs that failed; none if it is not known which."""
    hardware: bool = True
    """Whether it tested GPUs, and not only what is installed."""


def run(settings: Settings, level: int, limit: float, *, attended: bool) -> int:
    """Test, and write down the result; the exit code. ``limit`` is DCGM's, in seconds.

    ``attended``: it ends when its standard input does. One that is interrupted leaves the earlier result.
    """
    try:
        earlier = _require_free(settings)
        gpus = smi.query(settings)
        driver = smi.values(settings, "--query-gpu=driver_version")
    except (RefusedError, smi.FailedError, smi.HangsError, cluster.ClusterError) as problem:
        due = "; a reboot is due" if _REBOOT.exists() else ""
        print(f"the burn-in can't begin: {problem}{due}", file=sys.stderr)
        return REFUSED
    record: dict[str, Any] = {
        "state": "running",
        "level": level,
        "started": stamp(int(time.time())),
        "ended": None,
        "boot": settings.boot.read_text().strip(),
        "process": asdict(smi.Process.of(os.getpid()) or smi.Process(0, "")),
        "driver": driver[0] if driver else None,
        "dcgm": None,
        "bus_gb_s": None,
        "gpus": [{"index": gpu.index, "name": gpu.name, "uuid": gpu.uuid} for gpu in gpus],
        "tests": [],
    }
    try:
        _catch_signals(attended=attended)
        _write(settings, record)
        tests = [*_count(settings, gpus), *_diagnostics(settings, record, gpus, level, limit)]
        tests.append(_all_reduce(settings, record, gpus))
    except Interrupted:
        if earlier is None:
            settings.burn_in.unlink(missing_ok=True)
        else:
            replace(settings.burn_in, earlier.rstrip("\n"))
        return INTERRUPTED
    _ignore_signals()
    results = {test.result for test in tests if test.hardware}
    state = "failed" if any(test.result == "fail" for test in tests) else "passed"
    if state == "passed" and results == {"skip"}:
        state = "skipped"
    record |= {"state": state, "ended": stamp(int(time.time())), "tests": [asdict(test) for test in tests]}
    _write(settings, record)
    _say(f"burn-in {state}")
    return FAILED if state == "failed" else PASSED


def look(findings: Findings, settings: Settings, forgiven: int) -> None:
    """Add what an earlier burn-in found to the findings of a check, as long as the GPUs are there."""
    record = _read(settings)
    if record is None:
        return
    try:
        if record["state"] == "running" and not _runs(settings, record):
            text = f"the burn-in of {record['started']} did not end: run it again"
            _add(findings.faults, text, record["started"], forgiven)
        elif record["state"] == "failed":
            _failed(findings, record, forgiven)
    except (KeyError, TypeError, ValueError) as problem:
        findings.faults.append(Fault(f"{settings.burn_in} can't be read: {problem!r}", Weight.NOTE))


def _failed(findings: Findings, record: dict[str, Any], forgiven: int) -> None:
    here = {gpu.uuid: gpu for gpu in findings.gpus if gpu.uuid}
    for test in record["tests"]:
        if test["result"] != "fail":
            continue
        text = f"failed the burn-in of {record['ended']}: {test['name']}"
        for uuid in test["gpus"]:
            if uuid in here:  # or it was replaced
                _add(here[uuid].faults, text, record["ended"], forgiven)
        if not test["gpus"]:
            _add(findings.faults, text, record["ended"], forgiven)


def _add(faults: list[Fault], text: str, at: str, forgiven: int) -> None:
    if calendar.timegm(time.strptime(at, "%Y-%m-%dT%H:%M:%SZ")) > forgiven:
        faults.append(Fault(text, Weight.LASTING))


def _require_free(settings: Settings) -> str | None:
    """The text of the earlier result. RefusedError where somebody uses the GPUs, or soon might."""
    record = _read(settings)
    if record is not None and record.get("state") == "running" and _runs(settings, record):
        raise RefusedError(f"one runs since {record['started']}")
    if busy := smi.values(settings, "--query-compute-apps=pid"):
        raise RefusedError(f"the GPUs are in use by the processes {', '.join(busy)}: drain the machine first")
    if "Enabled" in smi.values(settings, "--query-gpu=mig.mode.current"):
        raise RefusedError(
            "GPUs are split into instances, which DCGM does not test; here: causeway-gpu-mig off && "
            "causeway-gpu-health burn-in"
        )
    if cluster.takes_pods(settings):
        raise RefusedError(f"{settings.node} takes pods: first, invoke cluster.drain {settings.node}")
    return settings.burn_in.read_text() if settings.burn_in.exists() else None


def _count(settings: Settings, gpus: list[Gpu]) -> list[Test]:
    if settings.count is None or len(gpus) == settings.count:
        return []
    return [Test("count", "fail", [f"{len(gpus)} GPUs answer, {settings.count} expected"], hardware=False)]


def _diagnostics(
    settings: Settings, record: dict[str, Any], gpus: list[Gpu], level: int, limit: float
) -> list[Test]:
    name = f"DCGM's diagnostics, level {level}"
    command = [settings.dcgmi, "diag", "--run", str(level), "--json"]
    try:
        code, out, errors = _ended(command, limit, name)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return [Test("dcgmi diag", "fail", [_reason(problem)])]
    try:
        said = json.loads(out[out.index("{") :])
        diagnosis, metadata = said["DCGM Diagnostic"], said.get("metadata", {})
        if "runtime_error" in diagnosis:
            return [Test("dcgmi diag", "fail", [str(diagnosis["runtime_error"])])]
        record["dcgm"] = metadata.get("version")
        tests = [
            _test(each, category["category"], gpus)
            for category in diagnosis["test_categories"]
            for each in category["tests"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [Test("dcgmi diag", "fail", [_line(errors or out) or f"it ended with exit code {code}"])]
    if code and not any(test.result in ("fail", "warn") for test in tests):
        tests.append(Test("dcgmi diag", "fail", [f"it ended with exit code {code}"]))
    return tests


def _test(said: dict[str, Any], category: str, gpus: list[Gpu]) -> Test:
    results = said.get("results", [])
    statuses, grave = set(), False
    messages, notes, failed = dict[str, None](), dict[str, None](), dict[str, None]()
    for each in [*results, said.get("test_summary", {})]:
        warnings = each.get("warnings", [])
        bad = any(warning.get("error_severity") in (_ISOLATE, _RESET) for warning in warnings)
        grave |= bad
        statuses.add(each.get("status"))
        messages |= dict.fromkeys(_line(warning["warning"]) for warning in warnings)
        notes |= dict.fromkeys(map(_line, each.get("info", [])))
        if each.get("entity_group_id") == _GPU and (bad or each.get("status") == "Fail"):
            # A host engine that has just started numbers GPUs as the driver does.
            failed |= {gpu.uuid: None for gpu in gpus if gpu.index == each["entity_id"]}
    result = (
        "fail" if grave or "Fail" in statuses
        # Of a test that passes it reports errors too (NVIDIA/DCGM#284).
        else "warn" if messages or "Warn" in statuses
        else "pass" if "Pass" in statuses
        else "skip"
    )  # fmt: skip
    words = list(notes if result == "skip" else messages)[:8]
    return Test(said["name"], result, words, list(failed), hardware=category != "Deployment")


def _all_reduce(settings: Settings, record: dict[str, Any], gpus: list[Gpu]) -> Test:
    name = "nccl_all_reduce"
    if len(gpus) < 2:
        return Test(name, "skip", ["one GPU has nobody to reduce with"])
    command = [sys.executable, "-B", "-m", "gpu_health.nccl", str(settings.all_reduce)]
    try:
        code, out, errors = _ended(command, _ALL_REDUCE, f"all-reduce over {len(gpus)} GPUs")
        said = json.loads(out)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Test(name, "fail", [_reason(problem)])
    except ValueError:  # it died within a library
        return Test(name, "fail", [_line(errors) or f"it ended with exit code {code}"])
    if "missing" in said:
        return Test(name, "skip", [said["missing"]])
    if "error" in said:
        return Test(name, "fail", [said["error"]])
    record["bus_gb_s"] = said["bus_gb_s"]
    return Test(name, "pass")


def _ended(command: list[str], limit: float, about: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command, with a line each minute. What is interrupted or takes longer
    is ended, with all that it started."""
    _say(about)
    began = time.monotonic()
    # It may write files where it is.
    with tempfile.TemporaryDirectory(prefix="burn-in-") as folder:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            while True:
                left = began + limit - time.monotonic()
                try:
                    out, errors = process.communicate(timeout=max(min(60, left), 0))
                except subprocess.TimeoutExpired:
                    if left <= 60:
                        raise subprocess.TimeoutExpired(command, limit) from None
                    _say(f"{about}: {(time.monotonic() - began) / 60:.0f} min")
                else:
                    return process.returncode, out, errors
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """DCGM stops its diagnostics by itself when it is asked to; what hangs within the driver is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        os.killpg(process.pid, number)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            continue
    with contextlib.suppress(ProcessLookupError):  # what it has started
        os.killpg(process.pid, signal.SIGKILL)


def _catch_signals(*, attended: bool) -> None:
    def interrupt(_number: int, _frame: object) -> None:
        _ignore_signals()
        raise Interrupted

    def watch() -> None:
        # They are for the main thread, which would not wake up if this one got them.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, interrupt)
    if attended:
        threading.Thread(target=watch, daemon=True).start()


def _ignore_signals() -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)


def _runs(settings: Settings, record: dict[str, Any]) -> bool:
    process = smi.Process(**record["process"])
    return record["boot"] == settings.boot.read_text().strip() and smi.Process.of(process.pid) == process


def _read(settings: Settings) -> dict[str, Any] | None:
    try:
        found = json.loads(settings.burn_in.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(settings: Settings, record: dict[str, Any]) -> None:
    replace(settings.burn_in, json.dumps(record, indent=2))


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        print(text, flush=True)


def _reason(problem: OSError | subprocess.TimeoutExpired) -> str:
    if isinstance(problem, subprocess.TimeoutExpired):
        return f"no result within {problem.timeout / 60:.0f} min"
    return str(problem)


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
