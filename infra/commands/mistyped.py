"""Suggests a name for an unknown task or option.

invoke's own error contains only the word, and its parser has no hook: its method is replaced.
"""

from __future__ import annotations

from invoke.parser.parser import ParseMachine

from infra.nearest import meant, nearest


def error(self: ParseMachine, msg: str) -> None:
    """invoke's ``ParseMachine.error``, with a suggestion after an unknown word."""
    word = msg.removeprefix("No idea what ").removesuffix(" is!").strip("'\"")
    if msg == f"No idea what {word!r} is!":
        msg = message(self, word)
    original(self, msg)


original = ParseMachine.error


def message(machine: ParseMachine, word: str) -> str:
    """``plna: no such task; did you mean plan?``"""
    context = machine.context
    if word.startswith("-"):
        known = [*machine.initial.flags] if machine.initial else []
        known += context.flags if context else []
        task = f" of {context.name}" if context and context.name else ""
        what, see = f"no such option{task}", f"invoke {context.name} --help" if task else "invoke --help"
    else:
        known = [name for one in machine.contexts.values() for name in (one.name, *one.aliases)]
        what, see = "no such task", "invoke --list"
    return f"{word}: {what}; {meant(nearest(word, known)) or f'see: {see}'}"


def install() -> None:
    """Replace the method of invoke's parser."""
    ParseMachine.error = error  # type: ignore[method-assign]
