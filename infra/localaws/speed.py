"""Caches work that moto repeats in each call, which takes a third of the time of calls and of the start.

Nothing here changes a response. In moto 5.2.5, `get_backend_for_host` lists moto's folder of two hundred
entries twice per call; `call_action` sorts all members of a class to find one method; an S3 object is read
completely for each range of it, and 1 GiB is downloaded in 128 of them. botocore parses its service models,
of which EC2's has ten megabytes, with the slower of Python's JSON decoders.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from weakref import ref

from infra.localaws.patching import method


class _Methods:
    """The names of a class's methods, looked up on demand, as extensions may add some later."""

    def __init__(self, owner: type) -> None:
        self._owner = owner

    def __contains__(self, name: str) -> bool:
        return inspect.isfunction(getattr(self._owner, name, None))


def install() -> None:
    """Called once per process, before the first call."""
    import orjson
    from botocore.loaders import JSONFileLoader
    from moto import backends
    from moto.core import responses

    @method(JSONFileLoader)
    def _load_file(_self: Any, path: str, opened: Any) -> Any:
        if not Path(path).is_file():
            return None
        with opened(path, "rb") as file:
            return orjson.loads(file.read())

    listed: Any = backends.list_of_moto_modules

    @cache
    def modules() -> frozenset[str]:
        return frozenset(listed())

    for owner, name, ours in (
        (backends, "list_of_moto_modules", modules),
        (responses, "method_names_from_class", _Methods),
    ):
        getattr(owner, name)  # raises if a later moto moved it
        setattr(owner, name, ours)
    _keep_last_object()


def _keep_last_object() -> None:
    """Cache the bytes of the last object that was read. A rewritten object is a new one."""
    from moto.s3 import models

    keys: Any = models.FakeKey
    of_moto = keys.value
    nobody: tuple[Callable[[], Any], bytes] = (lambda: None, b"")
    last = nobody

    def read(key: Any) -> bytes:
        nonlocal last
        whose, found = last
        if whose() is not key:
            found = of_moto.fget(key)
            last = (ref(key), found)
        return found

    def write(key: Any, new: Any) -> None:
        nonlocal last
        of_moto.fset(key, new)
        last = nobody

    keys.value = property(read, write)
