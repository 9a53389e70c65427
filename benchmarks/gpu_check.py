"""What of Causeway meets a GPU, tried on a machine that has an NVIDIA one: five minutes, no root, no network.

    python3 benchmarks/gpu_check.py                     all checks
    python3 benchmarks/gpu_check.py --only leases       one of them
    python3 benchmarks/gpu_check.py --keep FOLDER       also what nvidia-smi said, for tests without a GPU

It needs what ``pip install causeway-client`` brings, NVIDIA's driver, and for checkpoints PyTorch. GPUs
should be idle. Exit code 1 where a check failed, 2 where there is no GPU to check with.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

REPOSITORY = Path(__file__).resolve().parents[1]
PATIENCE = 30.0
"""Seconds that the driver has to notice that a program has come or gone."""
QUERIES = (
    ("-q", "-x"),
    ("--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits"),
    ("--query-gpu=name,driver_version", "--format=csv,noheader,nounits"),
    ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"),
    ("--query-gpu=utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits"),
    ("--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader,nounits"),
)
"""What Causeway asks nvidia-smi for."""

HOLD = '''
"""A program on a GPU, by NVIDIA's driver alone: it holds memory, and works or does nothing for SECONDS."""
import ctypes, sys, time

cuda = ctypes.CDLL("libcuda.so.1")

def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        raise SystemExit(f"{name}: error {code} of the driver")

count, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
name = ctypes.create_string_buffer(100)
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
call("cuDeviceGetName", name, 100, 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
size = 256 << 20
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
print(f"GPUs: {count.value} {name.value.decode()}", flush=True)
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    if sys.argv[1] == "works":
        for _ in range(100):
            call("cuMemsetD32_v2", memory, 1, ctypes.c_size_t(size // 4))
        call("cuCtxSynchronize")
    else:
        sum(range(100_000))  # its processor works all the time
'''

LEASE = '''
"""Leases a GPU for ever, and says so."""
import sys, time
from causeway.errors import CausewayError
from causeway.machines.leases import Leases

leases = Leases()
try:
    taken = leases.take(1, {}, {"user": "ada", "run": sys.argv[1], "worker": "worker-0"})
except CausewayError as error:
    raise SystemExit(f"refused: {error}")
print(f"leased {taken[0].uuid}", flush=True)
time.sleep(600)
'''

TRAIN = '''
"""Trains a small network on the GPU; step by step the same, whenever it was interrupted."""
import hashlib, os, pathlib, signal
import causeway
import torch

torch.use_deterministic_algorithms(True)
torch.manual_seed(7)
layers = torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 8)
net = torch.nn.Sequential(*layers).cuda()
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
step, resume = 0, os.environ.get("CAUSEWAY_RESUME")
if resume:
    saved = torch.load(pathlib.Path(resume, "state.pt"), weights_only=True)
    net.load_state_dict(saved["net"])
    adam.load_state_dict(saved["adam"])
    torch.cuda.set_rng_state(saved["random"])
    step = saved["step"]
print(f"begins at {step} on {next(net.parameters()).device}", flush=True)
while step < 200:
    step += 1
    data = torch.Generator("cuda").manual_seed(step)
    x = torch.randn(128, 64, device="cuda", generator=data)
    y = torch.randint(8, (128,), device="cuda", generator=data)
    adam.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    adam.step()
    if step % 20 == 0:
        with causeway.checkpoint(step) as folder:
            state = {"net": net.state_dict(), "adam": adam.state_dict(), "step": step}
            torch.save({**state, "random": torch.cuda.get_rng_state()}, folder / "state.pt")
    if step == 117 and os.environ.get("DIES") and not resume:
        os.kill(os.getpid(), signal.SIGKILL)
found = hashlib.sha256()
for values in net.state_dict().values():
    found.update(values.cpu().numpy().tobytes())
print(f"trained {found.hexdigest()}", flush=True)
'''


class CheckError(Exception):
    """What was seen, and is not as it should be."""


class Machine:
    """This machine, with a home of its own for the check."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.project = scratch / "project"
        self.project.mkdir()
        for name, text in (("hold.py", HOLD), ("lease.py", LEASE), ("train.py", TRAIN)):
            (self.project / name).write_text(text, encoding="utf-8")
        paths = [str(REPOSITORY / "client"), os.environ.get("PYTHONPATH", "")]
        self.environment = {
            **os.environ,
            **{f"XDG_{name}_HOME": str(scratch / name.lower()) for name in ("DATA", "CACHE", "CONFIG")},
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            # cuBLAS is deterministic with this alone (cuBLAS, "Results reproducibility").
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        }
        self.said: dict[str, str] = {}
        """What nvidia-smi said, by what it was asked."""

    def smi(self, *arguments: str) -> str:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout

    def note(self, prefix: str = "") -> None:
        """Keeps what nvidia-smi says now."""
        for arguments in QUERIES[1:] if prefix else QUERIES:
            self.said[f"{prefix}{' '.join(arguments)}"] = impersonal(self.smi(*arguments))

    def causeway(self, *arguments: str, **environment: str) -> tuple[dict[str, Any], str]:
        """What a command of the client says as JSON, and what it shows."""
        done = subprocess.run(
            [sys.executable, "-m", "causeway", arguments[0], "--json", *arguments[1:]],
            cwd=self.project, env={**self.environment, **environment},
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        try:
            return json.loads(done.stdout.splitlines()[-1]), done.stderr
        except (IndexError, ValueError):
            raise CheckError(f"causeway {' '.join(arguments)}: {done.stderr[-2000:]}") from None

    @contextmanager
    def running(self, *words: str) -> Iterator[IO[str]]:
        """A program beside the check; gives its output."""
        with subprocess.Popen(
            [sys.executable, *words], cwd=self.project, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            try:
                yield process.stdout
            finally:
                process.kill()

    def gpus(self) -> list[list[str]]:
        """Index, UUID, name and MiB of each."""
        return [line.split(", ") for line in self.smi(*QUERIES[1]).splitlines()]


def impersonal(text: str) -> str:
    """Without what names this one machine: numbers of its GPUs, its programs."""
    text = re.sub(r"GPU-[0-9a-f-]{36}", "GPU-00000000-0000-0000-0000-000000000000", text)
    text = re.sub(
        r"<(serial|gpu_uuid|module_id|cluster_uuid|chassis_serial_number|pdi)>[^<]*<", r"<\1>N/A<", text
    )
    text = re.sub(
        r"(?s)(<supported_clocks>).*?(</supported_clocks>)", r"\1\2", text
    )  # long, and read by nobody
    text = re.sub(r"<process_name>[^<]*<", "<process_name>python3<", text)
    return re.sub(r"<timestamp>[^<]*<", "<timestamp>Thu Jan  1 00:00:00 1970<", text)


def expect(holds: object, what: str) -> None:
    if not holds:
        raise CheckError(what)


def wait_for(look: Callable[[], object], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not look():
        expect(time.monotonic() < until, f"{what}: not within {PATIENCE:.0f} s")
        time.sleep(0.2)


def sees(machine: Machine) -> str:
    """A run on this machine sees the GPUs that nvidia-smi has."""
    ended, shown = machine.causeway(
        "run", "--local", "--gpus", "1", "--", sys.executable, "hold.py", "works", "1"
    )
    expect(ended["state"] == "done", shown)
    found = re.search(r"GPUs: (\d+) (.+)", shown)
    gpus = machine.gpus()
    expect(found and (int(found[1]), found[2]) == (len(gpus), gpus[0][2]), f"{shown}\nnvidia-smi: {gpus}")
    return f"{len(gpus)} x {gpus[0][2]}"


def leases(machine: Machine) -> str:
    """A lease is refused while somebody computes on the GPU, or leases it; and ends with who had it."""
    from causeway.machines import leases as product

    found, rows = product.gpus(), machine.gpus()
    expect(
        [[str(each.index), each.uuid, each.name, str(each.memory)] for each in found] == rows,
        f"{found}, {rows}",
    )
    wait_for(lambda: not product.taken(found), "all GPUs are free")
    with machine.running("hold.py", "waits", "600") as output:
        expect(output.readline().startswith("GPUs:"), "a program computes")
        wait_for(lambda: found[0].uuid in product.taken(found), "nvidia-smi shows a program that computes")
        machine.note("in use: ")
        why = product.taken(found)[found[0].uuid]
        expect("without a lease" in why, why)
        if len(found) == 1:
            with machine.running("lease.py", "second") as refused:
                expect(
                    refused.readline().startswith("refused: 0 of 1 GPUs are free"), "a lease on it is refused"
                )
    wait_for(lambda: not product.taken(found), "the GPU is free again")
    with machine.running("lease.py", "first") as holder:
        line = holder.readline()
        expect(line.startswith("leased GPU-"), line)
        why = product.taken(found)[line.split()[1]]
        expect("leased by ada (first" in why, why)
        if len(found) == 1:
            with machine.running("lease.py", "second") as refused:
                line = refused.readline()
                expect("is leased by ada (first" in line, line)
    wait_for(lambda: not product.taken(found), "a lease ends with its holder")
    return why.partition(",")[0] + ")"


def idle(machine: Machine) -> str:
    """A run whose GPU does nothing is ended, however busy its processor is; one that works is left alone."""
    words = (
        "run",
        "--local",
        "--gpus",
        "1",
        "--set",
        "idle=15s",
        "--set",
        "time=3m",
        "--",
        sys.executable,
        "hold.py",
    )
    begun = time.monotonic()
    ended, shown = machine.causeway(*words, "waits", "120")
    seconds = time.monotonic() - begun
    reason = (ended["first_failure"] or {}).get("reason", "")
    expect(ended["state"] == "failed" and "its GPUs were below 5 %" in reason, f"{ended}\n{shown}")
    ended, shown = machine.causeway(*words, "works", "40")
    expect(ended["state"] == "done", f"{ended}\n{shown}")
    return f"ended after {seconds:.0f} s ({reason})"


def health(machine: Machine) -> str:
    """``causeway-gpu-health`` reads what nvidia-smi of this driver says."""
    machine.note()
    folder = machine.scratch / "health"
    folder.mkdir()
    logs = shutil.which("journalctl") or shutil.which("true")
    settings = {name: str(folder / name) for name in ("report", "state", "kubeconfig")}
    (folder / "settings.json").write_text(json.dumps({**settings, "journalctl": logs}))
    command = [sys.executable, "-B", "-m", "gpu_health", "--settings", str(folder / "settings.json")]
    environment = {**machine.environment, "PYTHONPATH": str(REPOSITORY / "cookbooks/gpu/files")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    expect(done.returncode == 0, done.stderr)
    report = json.loads((folder / "report").read_text())
    found, wanted = [[each["name"], each["uuid"]] for each in report["gpus"]], machine.gpus()
    expect(found == [[row[2], row[1]] for row in wanted], f"{report}\nnvidia-smi: {wanted}")
    reasons = [reason for each in report["gpus"] for reason in each["reasons"]]
    return f"healthy: {report['healthy']}; {'; '.join(reasons) or 'nothing found'}"


def checkpoints(machine: Machine) -> str:
    """A run that is killed goes on from tensors of the GPU, and ends as if nothing had been."""
    if subprocess.run(
        [sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], check=False
    ).returncode:
        return "not tried: no PyTorch with CUDA here"
    words = ("run", "--local", "--gpus", "1", "--set", "restarts=0", "--", sys.executable, "train.py")
    whole, shown = machine.causeway(*words)
    wanted = re.search(r"trained (\w+)", shown)
    expect(whole["state"] == "done" and wanted, shown)
    broken, shown = machine.causeway(*words, DIES="1")
    expect(broken["state"] == "failed", shown)
    ended, shown = machine.causeway("resume", "--local", broken["run"])
    begun, trained = re.search(r"begins at (\d+) on cuda", shown), re.search(r"trained (\w+)", shown)
    expect(ended["state"] == "done" and begun and trained and wanted, shown)
    assert begun
    assert trained
    assert wanted
    expect(begun[1] == "100", f"it goes on at step {begun[1]}, not 100")
    expect(trained[1] == wanted[1], f"{trained[1]} is not {wanted[1]}")
    return f"killed at step 117, went on at {begun[1]}: {trained[1][:12]}"


CHECKS: Mapping[str, Callable[[Machine], str]] = {
    each.__name__: each for each in (sees, leases, idle, health, checkpoints)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=[*CHECKS], help="may be repeated")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write what nvidia-smi said there")
    arguments = parser.parse_args()
    if shutil.which("nvidia-smi") is None:
        print("there is no nvidia-smi: this checks machines with NVIDIA's driver", file=sys.stderr)
        return 2
    sys.path.insert(0, str(REPOSITORY / "client"))
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        machine = Machine(Path(scratch))
        print(machine.smi(*QUERIES[2]).strip())
        for name in arguments.only or CHECKS:
            begun = time.monotonic()
            try:
                said, mark = CHECKS[name](machine), "ok"
            except (CheckError, OSError, subprocess.SubprocessError) as problem:
                said, mark, failed = str(problem), "FAILED", 1
            print(f"{mark:<6} {name:<12} {time.monotonic() - begun:5.1f} s  {said}", flush=True)
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            for row in machine.gpus()[:1]:
                path = arguments.keep / f"{re.sub(r'[^a-z0-9]+', '-', row[2].lower())}.json"
                path.write_text(json.dumps(machine.said, indent=1) + "\n", encoding="utf-8")
                print(f"what nvidia-smi said is in {path}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
