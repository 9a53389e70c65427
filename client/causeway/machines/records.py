"""Records of the runs on machines that were started from this laptop, and where: one file for each run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

from platformdirs import user_data_path

NAMED = "on"
"""``resnet-on-3``, ``resnet-on-s1``: neither a run nor a search of the cluster has such a name."""
_SEARCH = re.compile(rf".-{NAMED}-s\d+$")


def remember(run: str, hosts: Sequence[str]) -> None:
    """``hosts``: the first worker's machine first."""
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"hosts": list(hosts), "at": time.time()})
    (folder / f"{run}.json").write_text(text + "\n", encoding="utf-8")


def forget(run: str) -> None:
    (_folder() / f"{run}.json").unlink(missing_ok=True)


def hosts_of(run: str) -> list[str] | None:
    """Return its machines; None if it was not started here."""
    try:
        hosts: list[str] = json.loads((_folder() / f"{run}.json").read_text(encoding="utf-8"))["hosts"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    return hosts


def names() -> list[str]:
    folder = _folder()
    return [path.stem for path in folder.glob("*.json")] if folder.is_dir() else []


def is_search(name: str) -> bool:
    """Whether a search on machines is recorded here: ``resnet-on-s1``."""
    return bool(_SEARCH.search(name)) and (user_data_path("causeway") / "sweeps" / name).is_dir()


def search_of(run: str) -> str:
    """Return the search that a run is a trial of, ``resnet-on-s1-17`` → ``resnet-on-s1``; empty for other
    runs."""
    head, _, number = run.rpartition("-")
    return head if number.isdigit() and _SEARCH.search(head) else ""


def _folder() -> Path:
    return user_data_path("causeway") / "on"
