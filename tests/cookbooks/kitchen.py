"""Where cookbooks are, how their templates are rendered without Chef, and how a checker is run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

COOKBOOKS = Path(__file__).parents[2] / "cookbooks"
RENDER = Path(__file__).with_name("render.rb")

Attributes: TypeAlias = Mapping[str, Any]


class RenderErb(Protocol):
    """What the fixture ``render_erb`` is."""

    def __call__(
        self,
        cookbook: str,
        template: str,
        node_attributes: Attributes | None = None,
        variables: Attributes | None = None,
        libraries: Iterable[str] = (),
    ) -> str: ...


class Tool(Protocol):
    """What the fixture ``tool`` is."""

    def __call__(self, command: str, package: str) -> str: ...


def cookbooks() -> list[Path]:
    """The folders of all cookbooks."""
    return sorted(each.parent for each in COOKBOOKS.glob("*/metadata.rb"))


def render(
    ruby: str,
    cookbook: str,
    template: str,
    node_attributes: Attributes | None = None,
    variables: Attributes | None = None,
    libraries: Iterable[str] = (),
) -> str:
    """The text of ``cookbooks/<cookbook>/templates/<template>``. A template that raises fails the test.

    ``node_attributes`` go over the defaults of the cookbook and of ``base``; ``libraries`` are names of
    files in the cookbook's ``libraries/`` whose modules' methods the template uses.
    """
    asked = {
        "cookbooks": str(COOKBOOKS),
        "cookbook": cookbook,
        "template": template,
        "node": node_attributes or {},
        "variables": variables or {},
        "libraries": list(libraries),
    }
    done = subprocess.run(
        [ruby, RENDER], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(*command: str | Path, ok: bool = True, stdin: str | None = None) -> str:
    """Run a checker; its output. Fails the test when it does not end well (or does, if not ``ok``)."""
    done = subprocess.run(
        command,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode == 0) is ok, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}"
    return done.stdout
