"""Stores what is to be sent on disk, in order: it survives the death of the process at any moment.

Files in its folder:

- ``<number>.jsonl``: entries, one JSON value a line. Files are begun as they grow, and removed once sent.
- ``sent.json``: the position up to which entries were sent.
- ``names.json``: placeholders and their names (``Names``).

Nothing is flushed to the device: if the machine is lost, the folder is lost as well.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

_LONGEST = 4 << 20
"""Size in bytes at which a new file begins."""

Position = tuple[int, int]
"""Number of a file, and the offset in it."""


class Spool:
    """A spool for one process, and any number of its threads."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = threading.Lock()
        self._sent: Position = (1, 0)
        found = read_json(folder / "sent.json")
        if found is not None:
            self._sent = (found[0], found[1])
        self._last = max([self._sent[0], *self._numbers()])
        self._file = self._opened()

    def append(self, entry: Any) -> None:
        """Append an entry. It is stored once this returns. Raises OSError, leaving nothing of it, if the disk
        is full."""
        line = json.dumps(entry, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        with self._lock:
            if self._file.tell() >= _LONGEST:
                self._file.close()
                self._last += 1
                self._file = self._opened()
            before = self._file.tell()
            written = 0
            try:
                written = self._file.write(line)
            finally:
                if written < len(line):
                    self._file.truncate(before)
                    self._file.seek(before)
            if written < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def waiting(self) -> Iterator[tuple[Any, Position]]:
        """Yield entries that were not sent, each with the position after it."""
        with self._lock:
            number, start = self._sent
            last, end = self._last, self._file.tell()
        while number <= last:
            path = self._path(number)
            if path.exists():
                with path.open("rb") as file:
                    file.seek(start)
                    while (number < last or file.tell() < end) and (line := file.readline()):
                        yield json.loads(line.decode("utf-8", "surrogatepass")), (number, file.tell())
            number, start = number + 1, 0

    @property
    def is_empty(self) -> bool:
        """Whether everything was sent."""
        with self._lock:
            return self._sent >= (self._last, self._file.tell())

    @property
    def end(self) -> Position:
        """The position after the last entry."""
        with self._lock:
            return (self._last, self._file.tell())

    def sent(self, position: Position) -> None:
        """Record that everything before this position was sent."""
        write_json(self._folder / "sent.json", position)
        with self._lock:
            self._sent = position
            for number in self._numbers():
                if number < position[0]:
                    self._path(number).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the spool: nothing can be appended any more."""
        with self._lock:
            self._file.close()

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.jsonl"))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}.jsonl"

    def _opened(self) -> FileIO:
        """Return the last file, to append to. A line that a killed process left incomplete was not
        acknowledged."""
        path = self._path(self._last)
        if path.exists():
            with path.open("r+b") as whole:
                whole.truncate(whole.read().rfind(b"\n") + 1)
        # Unbuffered: what is written is in the kernel, and outlives this process.
        file = path.open("ab", buffering=0)
        file.seek(0, os.SEEK_END)
        return file


class Names:
    """Placeholders that programs received for runs and experiments which the server has under other names, or
    does not have yet."""

    def __init__(self, path: Path | None = None, found: Any = None) -> None:
        """``path``: where it is written at each change. ``found``: result of ``values``, from elsewhere."""
        self._path = path
        found = found or (read_json(path) if path else None) or {}
        self._lock = threading.Lock()
        self._runs: dict[str, dict[str, str]] = found.get("runs", {})
        self._experiments: dict[str, dict[str, str]] = found.get("experiments", {})

    @property
    def values(self) -> dict[str, Any]:
        """The content, for another ``Names``."""
        return {"runs": self._runs, "experiments": self._experiments}

    def experiment(self, name: str, alias: str) -> None:
        """Make ``alias`` the placeholder of the experiment with that name."""
        with self._lock:
            if alias not in self._experiments:
                self._experiments[alias] = {"name": name}
                self._write()

    def experiment_name(self, alias: str) -> str | None:
        return self._experiments.get(alias, {}).get("name")

    def experiment_id(self, alias: str) -> str | None:
        """The server's id; None while unknown."""
        return self._experiments.get(alias, {}).get("id")

    def found_experiment(self, alias: str, server_id: str) -> None:
        with self._lock:
            self._experiments[alias]["id"] = server_id
            self._write()

    def run_id(self, alias: str) -> str | None:
        """The server's id; None while unknown."""
        return self._runs.get(alias, {}).get("id")

    def found_run(self, alias: str, server_id: str, artifacts: str) -> None:
        with self._lock:
            self._runs[alias] = {"id": server_id, "artifacts": artifacts}
            self._write()

    def translated(self, text: str) -> str:
        """Replace placeholders in a text by the server's names."""
        for alias, found in [*self._runs.items()]:
            # mlflow-artifacts:/1/<run>/artifacts
            path = found["artifacts"].partition(":")[2].strip("/")
            text = text.replace(artifacts_of(alias), path).replace(alias, found["id"])
        for alias, found in [*self._experiments.items()]:
            if "id" in found:
                text = text.replace(alias, found["id"])
        return text

    def _write(self) -> None:
        if self._path is not None:
            write_json(self._path, self.values)


def artifacts_of(alias: str) -> str:
    """Return the path of a run's artifacts, if the server's is unknown."""
    return f"causeway/{alias}/artifacts"


def read_json(path: Path) -> Any:
    """Read a JSON file; None if it does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write_json(path: Path, values: Any) -> None:
    """Write a JSON file atomically."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(values), encoding="utf-8")
    part.replace(path)
