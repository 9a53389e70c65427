"""Runs one operation on copies of a PKI again and again, and kills it at the first, second … write.

A write is each file that is opened for writing, renamed, linked or removed, and each fsync, before and after
it; before an fsync what was written is also cut in half, as a power loss may do. The last run is not killed.
`python pki_killed.py <operation> <folder of copies> <template> <time> <easy-rsa folder>` prints how many.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from drive.pki.pki_lab import PASSPHRASE

from infra.drive.pki import Pki, encryption
from infra.drive.secrets.local import LocalStore

OPERATIONS: dict[str, Callable[[Pki, Path], object]] = {
    "create": lambda pki, _: pki.create(PASSPHRASE, "lab"),
    "issue": lambda pki, _: pki.clients([("grace", ""), ("grace", "phone")]),
    "revoke": lambda pki, _: pki.revoke("ada"),
    "renew": lambda pki, _: pki.renew(pki.certificates()[0], revoke=True),
    "renew_intermediate": lambda pki, _: pki.renew_intermediate(PASSPHRASE),
    "import": lambda pki, folder: pki.import_easy_rsa(folder, "", PASSPHRASE),
    "revoke_imported": lambda pki, _: pki.revoke("ada", passphrase=PASSPHRASE),
}


def open_pki(folder: Path, now: datetime) -> Pki:
    store = LocalStore("lab", folder / "secrets", {"XDG_CONFIG_HOME": str(folder / "config")})
    return Pki(store, domain="lab.internal", clock=lambda: now)


def kill_at(wanted: int) -> None:
    """From now on this process dies at its `wanted`th change of a file."""
    seen = count(1)

    def change() -> None:
        if next(seen) == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        writing = (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if writing or event in {"os.rename", "os.remove", "os.link", "os.mkdir"}:
            change()

    real = os.fsync

    def fsync(descriptor: int) -> None:
        change()
        file = os.fstat(descriptor)
        if stat.S_ISREG(file.st_mode) and next(seen) == wanted:
            os.ftruncate(descriptor, file.st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        real(descriptor)
        change()

    os.fsync = fsync  # type: ignore[assignment]
    sys.addaudithook(hook)


def main(operation: str, copies: Path, template: Path, now: datetime, extra: Path) -> int:
    encryption.COST = 4  # type: ignore[misc]
    for wanted in count(1):
        copy = shutil.copytree(template, copies / str(wanted))
        child = os.fork()
        if not child:
            kill_at(wanted)
            OPERATIONS[operation](open_pki(copy, now), extra)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return wanted
    raise AssertionError


if __name__ == "__main__":
    _, name, place, original, moment, other = sys.argv
    print(main(name, Path(place), Path(original), datetime.fromisoformat(moment), Path(other)))
