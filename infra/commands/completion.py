"""Shell completion of values: environments, and the sites, pools, users and machines of a spec.

invoke's scripts for bash, zsh and fish call ``invoke --complete`` for the possible next words. It completes
tasks and options; the values of options are added here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from invoke import program
from invoke.completion.complete import complete as of_invoke

from infra.errors import CausewayError

if TYPE_CHECKING:
    from invoke.parser.context import ParserContext

    from infra.load.source import Value


def complete(names: Any, core: Any, initial_context: Any, collection: Any, parser: Any) -> Any:
    """invoke's ``complete``, which prints words and exits, extended by values."""
    words = core.remainder.split()[1:]
    tokens = [word for word in words if word != "="]
    try:
        found = values(tokens, parser.contexts)
    except (CausewayError, OSError):
        found = ()
    if not found:
        return of_invoke(names, core, initial_context, collection, parser)
    sys.stdout.write("".join(f"{word}\n" for word in found))
    raise SystemExit(0)


def values(tokens: list[str], contexts: Mapping[str, ParserContext]) -> Collection[str]:
    """The values that may complete a command line; empty if something else is expected.

    The shells' scripts do not say whether a space ends the line: a complete value is assumed to be finished.
    """
    place = next((index for index in reversed(range(len(tokens))) if tokens[index] in contexts), None)
    if place is None:
        return ()
    context, arguments = contexts[tokens[place]], tokens[place + 1 :]
    # The flags have the short forms as aliases, which are not among their items.
    taking = {
        word: context.flags[word].name
        for word in arguments
        if word in context.flags and context.flags[word].takes_value
    }
    pairs = [*pairwise(["", *arguments])]
    positional = [word for before, word in pairs if not word.startswith("-") and before not in taking]
    environment = next((value for option, value in pairs if taking.get(option) == "env"), "")
    before, last = ["", "", *arguments][-2:]
    expected = [taking[word] for word in (last, before) if word in taking][:1]
    if last not in taking and not last.startswith("-") and positional in ([], [last]):
        expected += [argument.name for argument in context.positional_args[:1]]
    for name in expected:
        found = _VALUES[name](environment) if name in _VALUES else ()
        if last not in found:
            return found
    return ()


def _environments(_: str) -> list[str]:
    from infra.commands.environment import environments

    return environments()


def _spec(environment: str) -> Value:
    """The values as written, so that a spec with errors works too."""
    from infra.commands.environment import find
    from infra.load.inherit import read

    return read(find(environment).spec_file)[0]


def _under(*path: str) -> Callable[[str], Collection[str]]:
    def keys(environment: str) -> Collection[str]:
        value: Value | None = _spec(environment)
        for step in path:
            value = value.child(step) if value else None
        return tuple(value.content) if value and isinstance(value.content, dict) else ()

    return keys


def _nodes(environment: str) -> Collection[str]:
    sites = _spec(environment).child("sites")
    found: list[str] = []
    for site in sites.content.values() if sites and isinstance(sites.content, dict) else ():
        nodes = site.child("nodes")
        found += nodes.content if nodes and isinstance(nodes.content, dict) else ()
    return found


_VALUES: Final[Mapping[str, Callable[[str], Collection[str]]]] = {
    "env": _environments,
    "image": _under("images"),
    "node": _nodes,
    "nodes": _nodes,
    "only": _under("sites"),
    "pool": _under("pools"),
    "region": _under("sites"),
    "site": _under("sites"),
    "user": _under("access", "users"),
}
"""A task's argument → a function that returns its possible values in an environment."""


def install() -> None:
    """Replace the function of invoke's program."""
    program.complete = complete  # type: ignore[attr-defined]
