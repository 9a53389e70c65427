"""Two decorators with which extensions change classes of moto, so that a change is written as a method."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

Method: TypeAlias = Callable[..., Any]


def method(owner: type) -> Callable[[Method], Method]:
    """Add the decorated function to ``owner`` as a method, replacing one with the same name."""

    def install(function: Method) -> Method:
        setattr(owner, function.__name__, function)
        return function

    return install


def around(owner: type) -> Callable[[Method], Method]:
    """Wrap the method with the same name; the function gets the original as its first argument.

    Raises ``AttributeError`` if ``owner`` has no such method, because a later moto renamed it.
    """

    def install(function: Method) -> Method:
        original = getattr(owner, function.__name__)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, function.__name__, wrapped)
        return function

    return install
