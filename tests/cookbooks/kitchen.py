"""Where cookbooks are; their templates and libraries without Chef; and how a checker is run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
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
    ) -> str: ...


class Tool(Protocol):
    """What the fixture ``tool`` is."""

    def __call__(self, command: str, package: str) -> str: ...


class Ask(Protocol):
    """What the fixture ``ask`` is."""

    def __call__(self, library: str, expression: str, **given: Any) -> Any: ...


def cookbooks() -> list[Path]:
    """The folders of all cookbooks."""
    return sorted(each.parent for each in COOKBOOKS.glob("*/metadata.rb"))


def render(
    ruby: str,
    cookbook: str,
    template: str,
    node_attributes: Attributes | None = None,
    variables: Attributes | None = None,
) -> str:
    """The text of ``cookbooks/<cookbook>/templates/<template>``. A template that raises fails the test.

    ``node_attributes`` go over the defaults of the cookbook and of ``base``.
    """
    asked = {
        "cookbooks": str(COOKBOOKS),
        "cookbook": cookbook,
        "template": template,
        "node": node_attributes or {},
        "variables": variables or {},
    }
    done = subprocess.run(
        [ruby, RENDER], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(ruby: str, library: str, expression: str, **given: Any) -> Any:
    """The value of a Ruby ``expression`` with ``given`` as local variables, through JSON.

    ``library``: ``<cookbook>``, for all its ``libraries/``, or one of them, ``<cookbook>/<name>``. What the
    expression raises comes as ``{"raised": message}``.
    """
    cookbook, _, name = library.partition("/")
    files = sorted((COOKBOOKS / cookbook / "libraries").glob(f"{name or '*'}.rb"))
    script = (
        "require 'json'\n"
        + "".join(f"require '{file}'\n" for file in files)
        + "given = JSON.parse($stdin.read)\n"
        + "".join(f"{name} = given['{name}']\n" for name in given)
        + f"value = begin\n{expression}\n"
        + "rescue StandardError => error\n{ 'raised' => error.message }\nend\n"
        + "puts JSON.generate([value])"
    )
    return json.loads(run(ruby, "-e", script, stdin=json.dumps(given)))[0]


def run(*command: str | Path, ok: bool | None = True, stdin: str | None = None) -> str:
    """Run a checker; its output. Fails the test if it fails; ``ok`` False: if not; None: never."""
    done = subprocess.run(
        command,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    as_expected = ok is None or (done.returncode == 0) is ok
    assert as_expected, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}"
    return done.stdout
