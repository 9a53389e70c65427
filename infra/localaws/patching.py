"""How an extension changes a class of moto: two decorators, so that each change reads as the method it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

Method: TypeAlias = Callable[..., Any]


def method(owner: type) -> Callable[[Method], Method]:
    """Give ``owner`` the decorated function as a method, in place of one of that name if there is one."""

    def install(function: Method) -> Method:
        setattr(owner, function.__name__, function)
        return function

    return install


def around(owner: type) -> Callable[[Method], Method]:
    """Put the decorated function around the method of its name; it gets the original as first argument.

    ``AttributeError`` if ``owner`` has no such method: a later moto renamed it; the extension must follow.
    """

    def install(function: Method) -> Method:
        original = getattr(owner, function.__name__)

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, function.__name__, wrapped)
        return function

    return install
