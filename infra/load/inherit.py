"""``extends``: an environment starts from another file and overrides its values.

Mappings merge key by key, at every depth; anything else (a scalar, a list) replaces the base's value;
``null`` removes it, so that the default applies again. A base may itself extend another; ``extends`` is
relative to the file that contains it.
"""

from __future__ import annotations

from pathlib import Path

from infra.errors import Position, Problem
from infra.load.source import Value, parse


def merge(base: Value, over: Value) -> Value:
    """``over`` merged onto ``base``. Each value keeps its position."""
    if not isinstance(base.content, dict) or not isinstance(over.content, dict):
        return over
    content = dict(base.content)
    for key, value in over.content.items():
        if key not in content:
            content[key] = value
        elif value.content is None:
            del content[key]
        else:
            content[key] = merge(content[key], value)
    return Value(content, over.position)


def read(path: Path) -> tuple[Value, list[Problem]]:
    """The values of a spec file with everything that it extends, and problems of their format."""
    return _read(path, (), None)


def _read(path: Path, seen: tuple[Path, ...], asked: Position | None) -> tuple[Value, list[Problem]]:
    name = _shown(path)
    start = Position(name, 1)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        place = Position(name, error.object.count(b"\n", 0, error.start) + 1)
        return Value({}, start), [
            Problem("SPEC001", "", "not UTF-8 text", position=place, hint="save the file as UTF-8")
        ]
    except OSError as error:
        message = f"can't read {name}: {error.strerror}"
        code, where = ("SPEC006", "extends") if asked else ("SPEC001", "")
        return Value({}, start), [Problem(code, where, message, position=asked)]
    value, problems = parse(text, name)
    if not isinstance(value.content, dict):
        return value, problems
    extends = value.content.get("extends")
    if extends is None or extends.content is None:
        return value, problems
    if not isinstance(extends.content, str):
        message = "must be the name of one file, relative to this one"
        return value, [*problems, Problem("SPEC006", "extends", message, position=extends.position)]
    chain = (*seen, path.resolve())
    base_path = path.parent / extends.content
    if base_path.resolve() in chain:
        names = " → ".join(file.name for file in (*chain, base_path))
        message = f"is circular: {names}"
        return value, [*problems, Problem("SPEC006", "extends", message, position=extends.position)]
    base, base_problems = _read(base_path, chain, extends.position)
    return merge(base, value), [*base_problems, *problems]


def _shown(path: Path) -> str:
    """The path relative to the working directory."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix()
