"""AWS on a bad day: what was made is remembered, and the next apply finishes the work."""

from __future__ import annotations

import json
from collections.abc import Callable

from infra.drive import localaws as process
from localaws.control import Control
from localaws.faults import no_capacity, refused, throttling
from localaws.place import Place


def held(place: Place) -> set[str]:
    """Resource types in the state."""
    state = json.loads((place.folder / "terraform.tfstate").read_text())
    return {row["type"] for row in state["resources"] if row["instances"]}


def finished(place: Place, *, made: int) -> None:
    """A second apply makes the rest and nothing else, and all is well."""
    done = place.apply()
    assert done.code == 0, done
    assert f"{made} added, 0 changed, 0" in done.text
    assert place.plan().code == 0


def test_throttled_calls_are_tried_again(settle: Callable[..., Place]) -> None:
    place = settle("faults")
    Control(place.server).order(throttling("CreateVpc", 2), throttling("CreateAutoScalingGroup", 1))
    done = place.apply()
    assert done.code == 0, done
    assert Control(place.server).faults() == []


def test_an_api_that_fails_half_way(settle: Callable[..., Place]) -> None:
    place = settle("faults")
    Control(place.server).order(refused("CreateSubnet", "InternalError", "", skip=1))
    done = place.apply()
    assert done.code == 1, done
    assert "InternalError" in done.text
    assert held(place) == {"aws_vpc", "aws_subnet", "aws_launch_template"}
    Control(place.server).clear_faults()
    finished(place, made=2)
    assert place.destroy().code == 0
    assert process.inventory(place.server) == {}


def test_a_group_that_gets_no_machines(settle: Callable[..., Place]) -> None:
    place = settle("faults", TF_VAR_patience="2s")
    Control(place.server).order(no_capacity("p4d.24xlarge"))
    done = place.apply()
    assert done.code == 1, done
    assert "sufficient p4d.24xlarge" in " ".join(done.text.split())
    assert "aws_autoscaling_group" in held(place)
    Control(place.server).clear_faults()
    done = place.apply()
    assert done.code == 0, done
    assert place.plan().code == 0
