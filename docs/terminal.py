"""Draws `terminal.svg`, the README's picture of a terminal: real commands, in a real bash in tmux.

A lab is made in a folder of its own, and applied to the embedded AWS before the picture begins. Needs tmux.
Run it with what `make install` has installed: `.venv/bin/python docs/terminal.py`.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

DOCS: Final = Path(__file__).parent
WIDTH: Final = 106
"""Columns: what fits into the README at a size that can be read."""

PROMPT: Final = "$"

_BASE: Final = Path(tempfile.gettempdir()) / "causeway"
"""A fixed folder: its name is in the picture."""

SPEC: Final = """\
version: 1
name: vision
domain: vision.internal
aws: {embedded: true}
sites:
  us-west-2: {kind: aws, primary: true}
  rack:
    kind: physical
    cidr: 10.200.0.0/22
    gateway: {addresses: [198.51.100.10], asn: 65010}
    nodes:
      gateway: {address: 10.200.0.2, cpus: 8, memory: 16 GiB, roles: [site-gateway]}
      titan-01: {address: 10.200.0.11, cpus: 32, memory: 128 GiB, gpus: {model: titan-x-pascal, count: 4}}
images:
  gpu: {ubuntu: 24.04, gpu: {driver: 580}}
pools:
  gpu: {image: gpu, instance_types: [g5.xlarge], market: spot, regions: {us-west-2: {max: 8}}}
"""
EDIT: Final = "  big: {image: gpu, instance_types: [g5.12xlrage], regions: {us-west-2: {min: 3, max: 2}}}\n"

COMMANDS: Final = (
    "tail -n 1 environments/vision.yaml",
    "invoke plan",
    "sed -i 's/xlrage/xlarge/; s/min: 3/min: 1/' environments/vision.yaml",
    "invoke plan",
    "invoke apply",
    "causeway run --local -- python train.py",
)


class Terminal:
    """A bash in tmux, which is asked what it shows."""

    def __init__(self, folder: Path) -> None:
        self._tmux = ("tmux", "-L", folder.name, "-f", "/dev/null")
        size = ("-x", str(WIDTH), "-y", "400")
        self._run(
            "new-session", "-d", *size, "-c", str(folder), "env", f"PS1={PROMPT} ", "bash", "--norc", "-i"
        )
        self._wait(1)

    def type(self, command: str) -> None:
        """Enter a command, and wait until it has ended."""
        prompts = self._prompts()
        self._run("send-keys", "-l", command)
        self._run("send-keys", "Enter")
        self._wait(prompts + 1)

    def shows(self) -> Text:
        """All that was printed, without the prompt that waits."""
        shown = Text.from_ansi(self._run("capture-pane", "-p", "-e").rstrip())
        shown.right_crop(len(PROMPT))
        shown.rstrip()
        return shown

    def close(self) -> None:
        self._run("kill-server")

    def _prompts(self) -> int:
        return len(re.findall(rf"(?m)^{re.escape(PROMPT)}( |$)", self._run("capture-pane", "-p")))

    def _wait(self, prompts: int) -> None:
        while self._prompts() < prompts:
            time.sleep(0.2)

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], check=True, capture_output=True, text=True).stdout


@contextmanager
def applied_lab() -> Iterator[Path]:
    """The folder of a lab whose spec is applied, with the edit that the picture plans."""
    _BASE.mkdir()
    folder = _BASE / "vision"

    def run(*words: str, at: Path = folder) -> None:
        subprocess.run(words, cwd=at, check=True, stdout=subprocess.DEVNULL)

    try:
        run("python", "-m", "infra", "new", "vision", at=_BASE)
        spec = folder / "environments/vision.yaml"
        spec.write_text(SPEC, encoding="utf-8")
        (program,) = re.findall(
            r"(?s)<!-- tutorial:train -->\n```python\n(.*?)```",
            (DOCS / "tutorial.md").read_text(encoding="utf-8"),
        )
        (folder / "train.py").write_text(program, encoding="utf-8")
        run("git", "init", "--quiet")
        run("invoke", "apply", "--yes")
        spec.write_text(SPEC + EDIT, encoding="utf-8")
        yield folder
    finally:
        run("invoke", "local.down")
        shutil.rmtree(_BASE)


def svg(shown: Text) -> str:
    """It is drawn with the reader's own font: rich's would be fetched from another site."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(shown)
    drawn = console.export_svg(title="vision", unique_id="terminal")
    return re.sub(r"(?s)\s*@font-face \{.*?\}\n", "\n", drawn).replace("Fira Code", "ui-monospace")


def main() -> None:
    os.environ["XDG_DATA_HOME"] = str(_BASE / "data")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with applied_lab() as folder:
        terminal = Terminal(folder)
        try:
            for command in COMMANDS:
                terminal.type(command)
            shown = terminal.shows()
        finally:
            terminal.close()
    (DOCS / "terminal.svg").write_text(svg(shown), encoding="utf-8")


if __name__ == "__main__":
    main()
