"""Pauses Python's garbage collector while many objects without cycles are created.

A large spec becomes half a million objects, none of them in a cycle, which live until the command ends.
Scanning them repeatedly, during their creation and after, costs as much as all other work.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No garbage collection inside, and none later of the objects created inside.

    Reference counting still frees dropped objects, inside and later. May be nested.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
