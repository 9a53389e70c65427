"""Fixtures for tests of cookbooks. What a fixture returns is typed in ``kitchen``."""

from __future__ import annotations

import functools
import os
import shutil

import pytest

from cookbooks import kitchen

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


@pytest.fixture(scope="session")
def tool() -> kitchen.Tool:
    """``tool(command, package)``: where a command is. Skips the test where it is not."""

    def find(command: str, package: str) -> str:
        path = shutil.which(command, path=_PATH)
        if path is None:
            pytest.skip(f"{command} is not here: apt install {package}")
        return path

    return find


@pytest.fixture(scope="session")
def render_erb(tool: kitchen.Tool) -> kitchen.RenderErb:
    """``render_erb(cookbook, template, node_attributes, variables)``: see ``kitchen.render``."""
    return functools.partial(kitchen.render, tool("ruby", "ruby"))


@pytest.fixture(scope="session")
def ask(tool: kitchen.Tool) -> kitchen.Ask:
    """``ask(library, expression, **given)``: what Ruby answers; see ``kitchen.ask``."""
    return functools.partial(kitchen.ask, tool("ruby", "ruby"))
