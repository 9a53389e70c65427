"""Whether a pod may stand on a machine, as far as the machine alone says."""

from __future__ import annotations

import pytest
from autoscaler.make import GPU_TAINT, P3, cpu_group, group, node, requires, shape, titan
from hypothesis import given, settings
from hypothesis import strategies as some

from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed import node_affinity
from infra.autoscaler.observed.snapshot import (
    GPU,
    DaemonSet,
    NodeTerm,
    Requirement,
    Shape,
    Toleration,
)
from infra.autoscaler.reasons import Reason

ZONE = "topology.kubernetes.io/zone"


def test_06_selectors_take_current_labels_and_those_of_old() -> None:
    wants = shape(selector=((ZONE, "us-west-2a"),))
    assert node_affinity.obstacle(wants, {ZONE: "us-west-2a"}, ()) is None
    assert node_affinity.obstacle(wants, {"failure-domain.beta.kubernetes.io/zone": "us-west-2a"}, ()) is None
    old = shape(selector=(("failure-domain.beta.kubernetes.io/zone", "us-west-2a"),))
    assert node_affinity.obstacle(old, {ZONE: "us-west-2a"}, ()) is None
    assert node_affinity.obstacle(old, {ZONE: "us-west-2b"}, ()) is not None
    region = shape(selector=(("topology.kubernetes.io/region", "eu-west-1"),))
    assert node_affinity.obstacle(region, {}, ()) is not None


IN_B, IN_C = (shape(selector=((ZONE, zone),)) for zone in "bc")
LARGE_IN_B = shape(selector=(("beta.kubernetes.io/instance-type", "large"), (ZONE, "b")))
NOWHERE = shape(selector=((ZONE, "a"),), affinity=(NodeTerm((requires(ZONE, "NotIn", "a"),)),))


@pytest.mark.parametrize(
    ("wants", "zones", "fits"),
    [
        (IN_B, "ab", True),
        (IN_C, "ab", False),
        (LARGE_IN_B, "ab", True),
        (LARGE_IN_B, "a", False),
        (NOWHERE, "ab", False),
    ],
)
def test_06_a_group_has_each_of_its_zones_and_types(wants: Shape, zones: str, fits: bool) -> None:
    found = node_affinity.obstacle(wants, {}, (), zones=tuple(zones), types=("small", "large"))
    assert (found is None) is fits


def test_06_in_which_zones_a_pod_may_be() -> None:
    anywhere, west = shape(), shape(affinity=(NodeTerm((requires(ZONE, "In", "a", "c"),)),))
    assert node_affinity.open_zones(anywhere, {}, ("a", "b")) == ("a", "b")
    assert node_affinity.open_zones(west, {}, ("a", "b", "c")) == ("a", "c")


@pytest.mark.parametrize(
    ("toleration", "taint", "stands"),
    [
        (Toleration("k", "Equal", "v"), Taint("k", "v"), True),
        (Toleration("k", "", "v"), Taint("k", "v"), True),
        (Toleration("k", "Equal", "w"), Taint("k", "v"), False),
        (Toleration("k", "Equal"), Taint("k"), True),
        (Toleration("k", "Exists"), Taint("k", "v"), True),
        (Toleration("", "Exists"), Taint("k", "v", "NoExecute"), True),
        (Toleration("", "Exists", effect="NoSchedule"), Taint("k", "v", "NoExecute"), False),
        (Toleration("k", "Exists", effect="NoSchedule"), Taint("k", "v"), True),
        (Toleration("other", "Exists"), Taint("k", "v"), False),
        (Toleration("k", "Gt", "3"), Taint("k", "4"), True),
        (Toleration("k", "Lt", "3"), Taint("k", "4"), False),
        (Toleration("k", "Gt", "x"), Taint("k", "4"), False),
        (Toleration("k", "Maybe", "v"), Taint("k", "v"), False),
    ],
)
def test_07_tolerations(toleration: Toleration, taint: Taint, stands: bool) -> None:
    assert node_affinity.tolerates((toleration,), (taint,)) is stands
    assert (node_affinity.obstacle(shape(tolerations=(toleration,)), {}, (taint,)) is None) is stands


def test_07_a_taint_that_only_asks_keeps_nobody_off() -> None:
    assert node_affinity.obstacle(shape(), {}, (Taint("k", "v", "PreferNoSchedule"),)) is None
    assert node_affinity.obstacle(shape(), {}, (GPU_TAINT,)) is not None


def test_07_one_of_the_terms_must_hold_with_all_of_its_expressions() -> None:
    west = NodeTerm((requires("site", "In", "west"), requires("ssd", "Exists")))
    east = NodeTerm((requires("site", "In", "east"),))
    wants = shape(affinity=(west, east))
    assert node_affinity.obstacle(wants, {"site": "west", "ssd": ""}, ()) is None
    assert node_affinity.obstacle(wants, {"site": "east"}, ()) is None
    assert node_affinity.obstacle(wants, {"site": "west"}, ()) is not None


def test_07_an_empty_term_holds_nowhere() -> None:
    assert node_affinity.obstacle(shape(affinity=(NodeTerm(),)), {"a": "b"}, ()) is not None
    assert node_affinity.obstacle(shape(affinity=()), {"a": "b"}, ()) is not None
    assert node_affinity.somewhere((), {})
    assert not node_affinity.somewhere((NodeTerm(),), {})


def test_07_a_node_by_its_name() -> None:
    wants = shape(gpus=1, affinity=(NodeTerm(fields=(requires("metadata.name", "In", "titan-a01"),)),))
    here, there = titan("titan-a01"), titan("titan-a02")
    assert node_affinity.obstacle(wants, here.labels, here.taints, name=here.name) is None
    assert node_affinity.obstacle(wants, there.labels, there.taints, name=there.name) is not None
    new = group()
    assert node_affinity.obstacle(wants, new.labels, new.taints) is not None
    other = NodeTerm(fields=(requires("metadata.name", "NotIn", "titan-a01"),))
    assert node_affinity.obstacle(shape(gpus=1, affinity=(other,)), new.labels, new.taints) is None


def test_07_what_kubelet_says_of_every_node_needs_no_template() -> None:
    linux = shape(selector=(("kubernetes.io/os", "linux"), ("beta.kubernetes.io/arch", "amd64")))
    assert node_affinity.obstacle(linux, {}, ()) is None
    assert node_affinity.obstacle(linux, {"kubernetes.io/arch": "arm64"}, ()) is not None
    hosted = shape(affinity=(NodeTerm((requires("kubernetes.io/hostname", "Exists"),)),))
    assert node_affinity.obstacle(hosted, {}, ()) is None
    named = shape(selector=(("kubernetes.io/hostname", "titan-a01"),))
    assert node_affinity.obstacle(named, {}, ()) is not None
    assert node_affinity.obstacle(named, titan("titan-a01").labels, ()) is None


_KEYS = some.sampled_from([ZONE, node_affinity.TYPE, "failure-domain.beta.kubernetes.io/zone", "site"])
_WORDS = some.sampled_from(["a", "b", "c"])
_EXPRESSIONS = some.builds(
    Requirement,
    _KEYS,
    some.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"]),
    some.lists(_WORDS, max_size=2).map(tuple),
)
_TERMS = some.builds(NodeTerm, some.lists(_EXPRESSIONS, max_size=3).map(tuple))


@settings(deadline=None)
@given(
    some.dictionaries(_KEYS, _WORDS, max_size=2),
    some.none() | some.lists(_TERMS, max_size=3).map(tuple),
    some.dictionaries(_KEYS, _WORDS, max_size=2),
    some.lists(_WORDS, max_size=3),
    some.lists(_WORDS, max_size=3),
)
def test_06_a_machine_to_come_fits_if_one_that_it_may_become_does(
    selector: dict[str, str],
    affinity: tuple[NodeTerm, ...] | None,
    labels: dict[str, str],
    zones: list[str],
    types: list[str],
) -> None:
    wants = shape(selector=tuple(selector.items()), affinity=affinity)
    may_become = [
        {
            **labels,
            **({ZONE: zone} if zone and node_affinity.label(labels, ZONE) is None else {}),
            **({node_affinity.TYPE: kind} if kind and node_affinity.TYPE not in labels else {}),
        }
        for zone in zones or [""]
        for kind in types or [""]
    ]
    assert (node_affinity.obstacle(wants, labels, (), zones=zones, types=types) is None) == any(
        node_affinity.obstacle(wants, each, ()) is None for each in may_become
    )


def daemon(name: str, **more: object) -> DaemonSet:
    return DaemonSet("kube-system", name, shape(namespace="kube-system", **more))  # type: ignore[arg-type]


def test_08_daemons_that_fit_are_taken_off() -> None:
    p3, cpu = group(), cpu_group()
    everywhere = Toleration("", "Exists")
    daemons = (
        daemon("flannel", cpu=100, memory=50, tolerations=(everywhere,)),
        daemon(
            "dcgm",
            cpu=200,
            memory=70,
            selector=(("causeway.dev/gpu-model", "v100"),),
            tolerations=(everywhere,),
        ),
        daemon("timid", cpu=400, memory=90),
    )
    assert node_affinity.overhead(daemons, p3.labels, p3.taints) == {"cpu": 300, "memory": 120, "pods": 2}
    assert node_affinity.overhead(daemons, cpu.labels, cpu.taints) == {"cpu": 500, "memory": 140, "pods": 2}


def test_08_a_daemon_that_can_not_run_there_takes_nothing() -> None:
    agent = daemon("agent", cpu=100, gpus=1)
    cpu = cpu_group()
    assert node_affinity.overhead([agent], cpu.labels, cpu.taints, allocatable=cpu.allocatable) == {}
    assert node_affinity.overhead([agent], group().labels, group().taints, allocatable=P3)[GPU] == 1


def test_09_what_is_short_first_and_how_much_there_is() -> None:
    assert node_affinity.shortage(shape(gpus=4).requests, P3) is None
    assert node_affinity.shortage(shape(gpus=8).requests, P3) == Reason(
        "size", what=GPU, requested=8, limit=4
    )
    none = {"cpu": 1000, "pods": 1, "memory": -1}
    assert node_affinity.shortage(shape().requests, none) == Reason(
        "size", what="memory", requested=2**30, limit=0
    )


@pytest.mark.parametrize(
    ("wants", "labels", "taints", "why"),
    [
        (shape(), {}, (GPU_TAINT,), Reason("taint", what="nvidia.com/gpu=present:NoSchedule")),
        (shape(selector=(("team", "vision"),)), {}, (), Reason("label", what="team=vision")),
        (
            shape(selector=(("team", "vision"),)),
            {"team": "speech"},
            (),
            Reason("label", what="team=vision", has="speech"),
        ),
        (
            shape(affinity=(NodeTerm((requires("team", "In", "vision"),)), NodeTerm())),
            {},
            (),
            Reason("affinity", what="team=vision or nothing"),
        ),
        (shape(affinity=()), {}, (), Reason("affinity", what="nothing")),
    ],
)
def test_09_what_keeps_a_pod_off_a_machine(
    wants: Shape, labels: dict[str, str], taints: tuple[Taint, ...], why: Reason
) -> None:
    assert node_affinity.obstacle(wants, labels, taints) == why


def test_a_machine_of_a_group_is_as_its_template_says() -> None:
    for of in (group(), cpu_group()):
        made = node(of, zone=of.zones[1])
        for wants in (shape(), shape(gpus=1), shape(selector=((ZONE, of.zones[1]),))):
            template = node_affinity.obstacle(wants, of.labels, of.taints, zones=of.zones)
            assert (node_affinity.obstacle(wants, made.labels, made.taints, name=made.name) is None) == (
                template is None
            )
