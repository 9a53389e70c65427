"""For the program that a run starts: ``import causeway``. It needs Python 3.8 and nothing else.

Without Causeway, checkpoints go below ``checkpoints`` of the current folder, ``report`` does nothing, and
``should_stop`` is always False.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

_OURS = re.compile(r"step-(\d+)")


@contextmanager
def checkpoint(step: int) -> Iterator[Path]:
    """A folder to write a checkpoint to. When the block ends, the folder is renamed to ``step-<step>``.

    Older ones are removed, except for the last ``keep`` of the job file and those that are being copied to
    the store. Call it on rank 0, or on all ranks if the job has ``checkpoints: {sharded: true}``: then each
    rank writes files of its own, and the folder is renamed when all ranks have left the block.
    """
    folder = Path(os.environ.get("CAUSEWAY_CHECKPOINTS") or "checkpoints")
    sharded = bool(os.environ.get("CAUSEWAY_SHARDED"))
    if not sharded and int(os.environ.get("RANK") or 0):
        raise RuntimeError(
            "only rank 0 may call causeway.checkpoint, unless the job has checkpoints: {sharded: true}"
        )
    leads = not sharded or not int(os.environ.get("LOCAL_RANK") or 0)
    target = folder / ("step-%d" % step)
    written = target.with_name(target.name + ".tmp")
    if leads:
        shutil.rmtree(written, ignore_errors=True)
        written.mkdir(parents=True)
    _meet(sharded)
    try:
        yield written
    except BaseException:
        if leads:
            shutil.rmtree(written, ignore_errors=True)
        raise
    _meet(sharded)
    if leads:
        for path in [*written.rglob("*"), written]:
            _sync(path)
        shutil.rmtree(target, ignore_errors=True)
        time.sleep(
            0.02  # The kernel's clock advances by up to 10 ms; the rename has to be later than the files.
        )
        written.rename(target)
        _sync(folder)
        _remove_old(folder, sharded)
    _meet(sharded)


def report(step: int, **metrics: float) -> None:
    """Report what a step measured. Ranks other than the first are ignored."""
    path = os.environ.get("CAUSEWAY_METRICS")
    if not path or int(os.environ.get("RANK") or 0):
        return
    values = {name: float(value) for name, value in metrics.items()}
    line = json.dumps({"step": int(step), "at": time.time(), "metrics": values}) + "\n"
    with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(line)


def should_stop() -> bool:
    """Whether the run was asked to stop: then save, and exit. All ranks of torch.distributed get the same
    answer.

    After the first call, SIGTERM no longer ends the program, unless the program has a handler of its own.
    """
    if threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, lambda *_: None)
    path = os.environ.get("CAUSEWAY_STOP")
    stop = bool(path) and os.path.exists(str(path))  # noqa: PTH110
    distributed = _distributed()
    if distributed is None:
        return stop
    backend = str(distributed.get_backend())
    device = "cuda" if "nccl" in backend and "gloo" not in backend else "cpu"
    flag = sys.modules["torch"].tensor(int(stop), device=device)
    distributed.all_reduce(flag, op=distributed.ReduceOp.MAX)
    return bool(flag.item())


def _distributed() -> Any:
    """Return torch.distributed, if the program has imported and initialised it."""
    module: Any = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


def _meet(sharded: bool) -> None:
    distributed = _distributed() if sharded else None
    if distributed is not None:
        distributed.barrier()


def _remove_old(folder: Path, sharded: bool) -> None:
    """Remove old checkpoints. With parts, only those that were copied: a checkpoint is complete when all
    workers' parts have been."""
    steps = {int(match[1]): path for path in folder.iterdir() if (match := _OURS.fullmatch(path.name))}
    sending = _names(folder / ".sending")
    # They are sent in order.
    sent = max(
        (int(match[1]) for name in _names(folder / ".sent") if (match := _OURS.fullmatch(name))), default=-1
    )
    for step in sorted(steps)[: -int(os.environ.get("CAUSEWAY_KEEP") or 2)]:
        if steps[step].name not in sending and (not sharded or step <= sent):
            shutil.rmtree(steps[step], ignore_errors=True)


def _names(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except OSError:
        return []


def _sync(path: Path) -> None:
    """Flush to disk: a file that is renamed before its data is written may be empty after a power cut."""
    descriptor = os.open(str(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
