"""Python's cycle collector, kept from sweeping over a great many objects of which none is garbage.

A large spec becomes half a million objects, none of them in a cycle, which live until the command ends.
Sweeping over them again and again, while they are made and after, costs as much as all the rest.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No sweeps inside, and none later over what was made until its end.

    Reference counting still frees everything that is dropped, inside and later. May be nested.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.freeze()
            gc.enable()
