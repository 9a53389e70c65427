"""docs/slurm.md: what it says that we have, we have."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from pydantic import BaseModel

from causeway import local, runtime, workers
from causeway.cli import cli
from causeway.cluster import jobset
from causeway.job import Job

PAGE = Path(__file__).parents[2] / "docs/slurm.md"
_SOURCES = "".join(map(inspect.getsource, (runtime, workers, local, jobset)))


def spans() -> list[str]:
    """What is ours: all code of the second cells, and fields and our own commands of the third."""
    found: dict[str, None] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith("|-"):
            _, here, remark, *_ = [*re.split(r"(?<!\\)\|", line)[1:-1], ""]
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", here))
            found |= dict.fromkeys(re.findall(r"`(causeway [^`]+|[\w.]+:)`", remark))
    return [*found]


def field(name: str) -> bool:
    """Whether a job file has it: ``gpus.model``."""
    part: Any = Job
    for key in name.split("."):
        if not (isinstance(part, type) and issubclass(part, BaseModel)):
            return False
        info = next((info for own, info in part.model_fields.items() if (info.alias or own) == key), None)
        if info is None:
            return False
        kinds = [info.annotation, *get_args(info.annotation)]
        part = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return True


def flags(verb: str) -> set[str]:
    command = cli.commands[verb]
    return {flag for each in command.params if isinstance(each, click.Option) for flag in each.opts}


@pytest.mark.parametrize("span", spans())
def test_what_the_page_says_we_have_is_there(span: str) -> None:
    words = span.split(" -- ")[0].split()
    if words[0] == "causeway":
        verb = words[1]
        assert verb in cli.commands
        assert {word for word in words[2:] if word.startswith("-")} <= flags(verb)
    elif words[0].startswith("-"):
        assert {word for word in words if word.startswith("-")} <= flags("run")
    elif span.endswith(":"):
        assert field(span.removesuffix(":")), "no such field"
    else:
        assert span.isupper(), "neither a field with its colon, a flag, a command nor a variable"
        name = span.removeprefix("CAUSEWAY_")
        named = {span, name} if name in ("CODE", "RESULTS", "CHECKPOINTS", "LOGS") else {span}
        # The launcher's own: torchrun sets them where it starts the processes.
        assert any(re.search(rf'"{each}"|\b{each}=', _SOURCES) for each in named)
