"""The pause of the cycle collector ends when it should, and keeps nothing alive."""

from __future__ import annotations

import gc
import weakref

import pytest

from infra.collector import paused


class Thing:
    pass


def fails_inside() -> None:
    with paused():
        assert not gc.isenabled()
        with paused():
            pass
        assert not gc.isenabled()
        raise ValueError("why")


def test_a_pause_ends_with_its_block_also_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="why"):
        fails_inside()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_is_dropped_is_freed() -> None:
    with paused():
        thing = Thing()
        seen = weakref.ref(thing)
    del thing
    assert seen() is None
