"""Runs Graphviz's ``dot``, which lays out and draws graphs."""

from __future__ import annotations

from infra.errors import DriveError, ToolError

_GET = "install Graphviz: `apt install graphviz`, `brew install graphviz` or https://graphviz.org/download/"


def svg(source: str) -> str:
    """An SVG of a graph in the DOT language.

    Raises ``DriveError`` if ``dot`` is not on PATH, ``ToolError`` if it rejects the graph.
    """
    import graphviz

    try:
        drawn: bytes = graphviz.pipe("dot", "svg", source.encode(), quiet=True)
    except graphviz.ExecutableNotFound:
        raise DriveError(f"dot not found on PATH; {_GET}") from None
    except graphviz.CalledProcessError as problem:
        output = (problem.stderr or b"").decode(errors="replace")
        raise ToolError(("dot", "-Tsvg"), problem.returncode, output) from None
    return drawn.decode()
