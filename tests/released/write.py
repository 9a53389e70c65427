"""Writes the folder of the release that is being made: `python tests/released/write.py`, in a checkout.

Run it once for each release, and never change the folder of one that is out: what is in it is in labs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __name__ == "__main__":
    ROOT = Path(__file__).parents[2]
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import yaml
from released import formats, plans

from infra import __version__
from infra.load import load


def write(folder: Path) -> None:
    """All of it; the folder must not be there yet."""
    folder.mkdir()
    meaning: dict[str, Any] = {}
    for name, kind in formats.FORMATS.items():
        text = kind.write()
        file = folder / name
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        meaning[name] = kind.read(file)
    (folder / "jobs").mkdir()
    for example in sorted(formats.EXAMPLES.glob("*.yaml")):
        copy = folder / "jobs" / example.name
        copy.write_bytes(example.read_bytes())
        meaning[f"jobs/{copy.name}"] = formats.read_job(copy)
    meaning["names"] = formats.names()
    for name, spec in plans.SPECS.items():
        place = folder / "specs" / name
        place.mkdir(parents=True)
        flat = flattened(spec)
        (place / "spec.yaml").write_text(flat, encoding="utf-8")
        with TemporaryDirectory() as scratch:
            resources, _ = plans.planned(Path(scratch), name, flat, lock_beside(spec))
            lock = Path(scratch) / "environments" / f"{name}.lock.yaml"
            (place / "lock.yaml").write_bytes(lock.read_bytes())
        meaning[f"specs/{name}/lock.yaml"] = formats.lock_of(place / "lock.yaml")
        (place / "resources.json").write_text(lines(resources), encoding="utf-8")
    (folder / "meaning.json").write_text(lines(meaning), encoding="utf-8")


def flattened(spec: Path) -> str:
    """A spec with all that it extends."""
    values = load(spec).root.plain()
    values.pop("extends", None)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=110)


def lock_beside(spec: Path) -> str:
    """The lock file of a shipped spec, or of a golden one."""
    names = (spec.with_suffix(".lock.yaml"), spec.with_name("lock.yaml"))
    return next(file for file in names if file.exists()).read_text(encoding="utf-8")


def lines(values: Any) -> str:
    """JSON with a member a line."""
    rows = (f" {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in values.items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    target = formats.FOLDER / __version__
    if target.exists():
        sys.exit(f"{target} is there: a release is written once; delete the folder if it is not out yet")
    write(target)
    subprocess.run(["git", "add", str(target)], check=True)
    print(target)
