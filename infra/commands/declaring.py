"""Declares tasks of the command line by a signature with annotated options.

A function of ``infra.commands`` does the work. Its module is imported when the task runs, as ``invoke
--list`` and shell completion must be fast.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, Final, TypeAlias, get_origin

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import Task

Several: TypeAlias = tuple[str, ...]
"""An option that may be given several times."""
Env: TypeAlias = Annotated[
    str, "the environment, a file in environments/ (default: INFRA_ENV, else local, else the only one)"
]
Json: TypeAlias = Annotated[bool, "print the result as JSON"]
Rehearse: TypeAlias = Annotated[bool, "against the embedded AWS on this machine, whatever the spec says"]

namespace: Final = Collection()
"""All tasks, by their names on the command line."""

targets: Final[dict[str, tuple[str, Mapping[str, str]]]] = {}
"""Task → the function that does its work, and option → parameter of that function."""

Signature: TypeAlias = Callable[..., None]


def reported(body: Callable[..., int]) -> Callable[..., None]:
    """A task that prints errors without a traceback, and whose result is its exit code."""

    @wraps(body)
    def run(*args: Any, **options: Any) -> None:
        from infra.commands.terminal import reported_errors

        with reported_errors():
            if code := body(*args, **options):
                raise Exit(code=code)

    return run


def command(
    name: str,
    target: str,
    *,
    default: bool = False,
    parameters: Mapping[str, str] | None = None,
) -> Callable[[Signature], Signature]:
    """Declare a task: a function without a body has its options and help, another one does the work.

    ``name`` is the task's name: ``vpn.push``; a ``default`` task also stands for its collection. ``target``
    is module and function in ``infra.commands``: ``vpn.gateway_files:push``. If there is an option ``env``,
    its first argument is an ``Environment`` or a ``Project``; the other arguments are the options, by their
    names or by those in ``parameters``.
    """

    def declare(signature: Signature) -> Signature:
        options = inspect.signature(signature, eval_str=True).parameters.values()
        several = [each.name for each in options if _type(each) == Several]
        renamed = {each.name: (parameters or {}).get(each.name, each.name) for each in options}

        @reported
        def run(_: Context, /, **given: Any) -> int:
            function = find(target)
            values = {
                renamed[option]: tuple(value) if option in several else value
                for option, value in given.items()
            }
            code: int = function(*_subject(function, values), **values)
            return code

        run.__doc__ = signature.__doc__
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD),
                *(each.replace(default=None) if each.name in several else each for each in options),
            ]
        )
        targets[name] = (target, renamed)
        *parents, own = name.split(".")
        collection = namespace
        for parent in parents:
            if parent not in collection.collections:
                collection.add_collection(Collection(parent))
            collection = collection.collections[parent]
        task: Task[Any] = Task(
            run,
            name=own,
            iterable=several,
            default=default,
            help={each.name: _help(each) for each in options},
        )
        collection.add_task(task)
        return signature

    return declare


def find(target: str) -> Callable[..., int]:
    """The function of ``infra.commands`` that does a task's work."""
    module, _, name = target.partition(":")
    function: Callable[..., int] = getattr(import_module(f"infra.commands.{module}"), name)
    return function


def _help(option: inspect.Parameter) -> str:
    text: str = option.annotation.__metadata__[0]
    return f"{text}; may be given several times" if _type(option) == Several else text


def _type(option: inspect.Parameter) -> object:
    assert get_origin(option.annotation) is Annotated, f"{option.name} does not say what it is"
    return option.annotation.__origin__


def _subject(function: Callable[..., int], values: dict[str, Any]) -> tuple[object, ...]:
    """The first argument of a function: the selected environment, loaded if it takes a ``Project``."""
    if "env" not in values:
        return ()
    from infra.commands.environment import find as find_environment
    from infra.commands.environment import load_project

    environment = find_environment(values.pop("env"), rehearsed=values.pop("rehearse", False))
    wanted = next(iter(inspect.signature(function).parameters.values())).annotation
    return (environment if wanted == "Environment" else load_project(environment, changeable=True),)
