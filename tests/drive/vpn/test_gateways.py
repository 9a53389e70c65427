"""What strongSwan says of a tunnel becomes one state. It is played here; `tests/network` asks a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import MagicMock

import pytest

from infra.drive.vpn.gateways import LiveGateway

NAME = "us-west-2-1"


def association(state: str, seconds: int, **children: tuple[str, int, int]) -> dict[str, Any]:
    """An IKE SA as VICI tells of it: child → its state and the bytes in and out."""
    return {
        "state": state.encode(),
        "established": str(seconds).encode(),
        "child-sas": {
            name: {"state": stage.encode(), "bytes-in": str(into).encode(), "bytes-out": str(out).encode()}
            for name, (stage, into, out) in children.items()
        },
    }


def state_of(*associations: dict[str, Any]) -> Any:
    tunnel = MagicMock(routing="static")
    tunnel.name = NAME
    live = LiveGateway(MagicMock(tunnels=(tunnel,)), MagicMock())

    @contextmanager
    def vici(_: LiveGateway) -> Iterator[Any]:
        other = {"rack-b-1": association("ESTABLISHED", 9, a=("INSTALLED", 1000, 1000))}
        yield MagicMock(list_sas=lambda: [other, *({NAME: each} for each in associations)])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LiveGateway, "_vici", vici)
        return live.states()[NAME]


def test_two_associations_of_one_tunnel_are_counted_together() -> None:
    """Both ends began at once, and each sends by the one it made."""
    state = state_of(
        association("ESTABLISHED", 45, a=("INSTALLED", 0, 2348)),
        association("ESTABLISHED", 46, b=("INSTALLED", 1771, 0)),
    )
    assert (state.established, state.associations, state.seconds) == (True, 2, 46)
    assert (state.bytes_in, state.bytes_out) == (1771, 2348)


def test_one_that_works_makes_the_tunnel_work() -> None:
    state = state_of(association("CONNECTING", 0), association("ESTABLISHED", 3, a=("REKEYED", 5, 6)))
    assert (state.established, state.state, state.bytes_in) == (True, "ESTABLISHED", 5)
    assert state.associations == 1


def test_keys_without_a_child_carry_nothing() -> None:
    state = state_of(association("ESTABLISHED", 3, a=("DELETING", 5, 6)))
    assert (state.established, state.state, state.bytes_in) == (False, "ESTABLISHED", 0)


def test_no_association_is_down() -> None:
    assert (state_of().established, state_of().state) == (False, "DOWN")
