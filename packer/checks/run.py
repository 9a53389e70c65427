#!/usr/bin/env python3
"""Hold a machine against checks in goss's format: ``run.py [--vars FILE] [NAME…]``.

Needs nothing but Python. Each NAME is a file beside this one (``base`` → ``base.json``); without any, those
that the variables name in ``checks``. The files are goss's own JSON (https://goss.rocks), so that
``goss --gossfile base.json --vars checks.json validate`` holds the same checks; of goss's resources there are
``command``, ``file``, ``package`` and ``service``. ``{{.Vars.name}}`` is a variable.

Prints a line a check; exit code 1 when one does not hold, 2 for checks that can't be read.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

HERE = Path(__file__).resolve().parent
TIMEOUT_MS = 10_000

Checked: TypeAlias = Iterator[tuple[str, Any, Any]]
"""Property, what is wanted, what is there."""


def of_command(name: str, wanted: dict[str, Any]) -> Checked:
    """Goss: command. ``stdout`` and ``stderr`` are lists of patterns, see ``matches``."""
    limit = wanted.get("timeout", TIMEOUT_MS) / 1000
    try:
        ran = subprocess.run(
            ["sh", "-c", wanted.get("exec", name)],
            capture_output=True, text=True, errors="replace", timeout=limit, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        yield "exit-status", wanted["exit-status"], f"nothing in {limit:.0f} s"
        return
    yield "exit-status", wanted["exit-status"], ran.returncode
    for stream in ("stdout", "stderr"):
        for pattern in wanted.get(stream, []):
            if not matches(pattern, getattr(ran, stream)):
                said = " ".join((ran.stdout + ran.stderr).split())[:300]
                yield stream, pattern, said or "nothing"


def of_file(path: str, wanted: dict[str, Any]) -> Checked:
    """Goss: file."""
    there = os.path.lexists(path)
    yield "exists", wanted["exists"], there
    if not there:
        return
    seen = Path(path).stat()
    if "size" in wanted:
        yield "size", wanted["size"], seen.st_size
    if "mode" in wanted:
        yield "mode", wanted["mode"], f"{seen.st_mode & 0o7777:04o}"
    for pattern in wanted.get("contents", wanted.get("contains", [])):
        if not matches(pattern, Path(path).read_text(encoding="utf-8", errors="replace")):
            yield "contents", pattern, "no such line"


def of_package(name: str, wanted: dict[str, Any]) -> Checked:
    """Goss: package, of dpkg. A wanted version may be the beginning of one."""
    asked = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    installed = said[:1] == ["installed"]
    yield "installed", wanted["installed"], installed
    versions = wanted.get("versions", [])
    if installed and versions and not any(said[1].startswith(each) for each in versions):
        yield "versions", versions, said[1]


def of_service(name: str, wanted: dict[str, Any]) -> Checked:
    """Goss: service, of systemd."""
    for what, verb in (("enabled", "is-enabled"), ("running", "is-active")):
        if what in wanted:
            code = subprocess.run(
                ["systemctl", "--quiet", verb, name], check=False, stderr=subprocess.DEVNULL
            )
            yield what, wanted[what], code.returncode == 0


RESOURCES: dict[str, Callable[[str, dict[str, Any]], Checked]] = {
    "command": of_command,
    "file": of_file,
    "package": of_package,
    "service": of_service,
}


def matches(pattern: str, text: str) -> bool:
    """Goss's patterns: a text that a line holds, or ``/regex/``; after a ``!``, what no line may hold."""
    if pattern.startswith("!"):
        return not matches(pattern[1:], text)
    if len(pattern) > 1 and pattern[0] == pattern[-1] == "/":
        return any(re.search(pattern[1:-1], line) for line in text.splitlines())
    return any(pattern in line for line in text.splitlines())


def filled(text: str, variables: dict[str, Any]) -> str:
    """The text with its variables; KeyError for one that there is not."""
    return re.sub(
        r"\{\{\s*\.Vars\.(\w+)\s*\}\}", lambda found: json.dumps(str(variables[found[1]]))[1:-1], text
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vars", type=Path, help="a JSON file of variables")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    try:
        variables = json.loads(asked.vars.read_text(encoding="utf-8")) if asked.vars else {}
        wanted = {
            name: json.loads(filled((HERE / f"{name}.json").read_text(encoding="utf-8"), variables))
            for name in asked.names or variables["checks"]
        }
        unknown = {kind for checks in wanted.values() for kind in checks} - RESOURCES.keys()
    except (OSError, ValueError, KeyError) as problem:
        print(f"these checks can't be read: {problem!r}", file=sys.stderr)
        return 2
    if unknown:
        print(f"no such resource here: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    failed = 0
    for checks in wanted.values():
        for kind, things in checks.items():
            for name, properties in things.items():
                title = properties.get("title", f"{kind} {name}")
                wrong = [result for result in RESOURCES[kind](name, properties) if result[1] != result[2]]
                failed += bool(wrong)
                print(f"{'not ok' if wrong else 'ok'}: {title}")
                for what, should, found in wrong:
                    print(f"  {what}: wanted {should!r}, found {found!r}")
    sys.stdout.flush()
    if failed:
        print(f"{failed} check{'s' * (failed != 1)} failed: no image is made of this", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
