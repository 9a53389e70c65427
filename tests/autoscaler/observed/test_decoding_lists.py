"""Lists and watches: one bad object is a fault by its name, never an exception."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from autoscaler.apiobjects import condition, container, job, listed, meta, owner, pod, raw, template
from hypothesis import example, given, settings
from hypothesis import strategies as some

from infra.autoscaler.observed.decoding import Decoder, snapshot, split
from infra.autoscaler.observed.snapshot import Node, Pod

BAD = pod("bad", container({"cpu": "many"}))


def node(name: str = "n1", *, allocatable: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    status = {"allocatable": allocatable or {"cpu": "4"}, "conditions": [condition("Ready")]}
    return {"metadata": meta(name, namespace=""), "spec": spec, "status": status}


def test_a_page_says_where_it_ends_and_what_comes_next() -> None:
    found = Decoder().list("Pod", listed(pod("a"), pod("b"), version="42", token="next"))
    assert (found.version, found.next_token) == ("42", "next")
    assert [*found.objects] == ["user-ada/a", "user-ada/b"]
    last = Decoder().list("Node", listed(node()))
    assert last.next_token is None
    assert [*last.objects] == ["n1"]
    assert Decoder().list("Pod", raw({"metadata": {"resourceVersion": "1"}, "items": None})).objects == {}


@pytest.mark.parametrize(
    "bad",
    [
        BAD,
        pod("bad", container({"cpu": "-1"})),
        pod("bad", container({"cpu": ["1"]})),
        pod("bad", tolerations="all"),
        pod("bad", nodeSelector={"a": 1}),
        pod("bad", affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}),
        pod("bad", containers="none"),
        pod("bad", status={"startTime": "yesterday"}),
        pod("bad", labels={"a": {"b": "c"}}),
        {"metadata": meta("bad")},
        {"metadata": meta("bad"), "spec": None},
        {"metadata": {**meta("bad"), "creationTimestamp": "9999999-01-01T00:00:00Z"}, "spec": {}},
    ],
    ids=lambda bad: json.dumps(bad)[-60:],
)
def test_one_bad_pod_is_a_fault_and_the_others_are_there(bad: dict[str, Any]) -> None:
    found = Decoder().list("Pod", listed(pod("a"), bad, pod("b")))
    assert [*found.objects] == ["user-ada/a", "user-ada/b"]
    assert [*found.faults] == ["user-ada/bad"]
    assert 0 < len(found.faults["user-ada/bad"]) <= 301


def test_a_bad_pod_that_holds_a_node_keeps_it_busy() -> None:
    bad = [
        pod("bad", container({"cpu": "many"}), nodeName="n1", owner=owner("Job", "train")),
        pod("worse", nodeName="n1", containers=7, ownerReferences="none"),
    ]
    decoder = Decoder()
    found = decoder.list("Pod", listed(*bad, pod("good")))
    assert {*found.faults} == {"user-ada/bad", "user-ada/worse"}
    stand_in: Pod = found.objects["user-ada/bad"]
    assert (stand_in.node, stand_in.phase, stand_in.shape.requests) == ("n1", "Running", (("pods", 1),))
    assert stand_in.owner is not None
    assert stand_in.owner.kind == "Job"
    assert not stand_in.daemon
    worse: Pod = found.objects["user-ada/worse"]
    assert (worse.node, worse.owner, worse.local_storage) == ("n1", None, True)
    assert decoder.item("Pod", raw(bad[0])) == ("user-ada/bad", stand_in, "7")
    faults = snapshot({"Pod": {"user-ada/bad": stand_in}}, {}, {}, {}, 1.0).faults
    assert faults["Pod/user-ada/bad"].startswith("cpu: 'many' ")


def test_a_bad_node_is_still_there_and_takes_nothing() -> None:
    bad = node("bad", providerID="aws:///us-west-2a/i-1", taints="none")
    found = Decoder().list("Node", listed(bad, node()))
    stand_in: Node = found.objects["bad"]
    assert (stand_in.instance, stand_in.unschedulable, stand_in.allocatable) == ("i-1", True, {})
    assert [*found.faults] == ["bad"]


def test_a_list_that_is_none_is_an_error() -> None:
    for body in (b"", b"[]", b"{", b'{"items": 7}', b'{"items": [}', b'{"a": Infinity}', b"\xff"):
        with pytest.raises((msgspec.MsgspecError, ValueError)):
            Decoder().list("Pod", body)


def test_an_object_of_any_depth_or_size_stops_nobody() -> None:
    deep = b'{"metadata":{"name":"deep"},"spec":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}"
    body = b'{"metadata":{"resourceVersion":"3"},"items":[' + b",".join(
        [raw(node("a")), deep, raw(node("b"))]
    )
    found = Decoder().list("Node", body + b"]}")
    assert ([*found.objects], found.version) == (["a", "b"], "3")
    assert len(found.faults) == 1
    large = pod("large", annotations={"a.huge/note": "x" * 2_000_000}, labels={"l": "y" * 1000})
    assert Decoder().list("Pod", listed(large)).objects["user-ada/large"].annotations == {}


def test_fields_that_nobody_knows_are_passed_over() -> None:
    strange = pod("a", newField={"x": [1, {"y": None}]}, status={"other": 1.5})
    strange["more"] = [[]]
    assert not Decoder().list("Pod", listed(strange)).faults


def test_lines_of_a_watch() -> None:
    decoder = Decoder()
    added = decoder.event("Pod", raw({"type": "ADDED", "object": pod("a")}))
    assert (added.type, added.key, added.version, added.fault) == ("ADDED", "user-ada/a", "7", None)
    assert added.object.name == "a"
    gone = decoder.event("Pod", raw({"type": "DELETED", "object": BAD}))
    assert (gone.key, gone.object, gone.fault) == ("user-ada/bad", None, None)
    mark = decoder.event("Pod", raw({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}}))
    assert (mark.type, mark.object, mark.version) == ("BOOKMARK", None, "99")
    ended = decoder.event("Pod", raw({"type": "ERROR", "object": {"kind": "Status", "code": 410}}))
    assert (ended.type, ended.object) == ("ERROR", None)
    bad = decoder.event("Pod", raw({"type": "MODIFIED", "object": BAD}))
    assert (bad.key, bad.object, bad.version) == ("user-ada/bad", None, "7")
    assert bad.fault is not None
    with pytest.raises(msgspec.MsgspecError):
        decoder.event("Pod", b"{")


@settings(deadline=None)
@given(some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=3),
    max_leaves=20,
))  # fmt: skip
def test_cutting_a_list_finds_what_is_in_it(thing: Any) -> None:
    items = [{"metadata": {"name": "a"}, "thing": thing}, {"items": [thing], "metadata": 1}]
    for text in (
        {"metadata": {"x": thing}, "items": items},
        {"items": items, "kind": "x", "metadata": {"x": thing}},
    ):
        for indent in (None, 1):
            cut, parts = split(
                json.dumps(text, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
            )
            assert json.loads(cut.decode("utf-8", "surrogatepass")) == text["metadata"]
            assert [json.loads(each.decode("utf-8", "surrogatepass")) for each in parts] == items


KINDS: dict[str, dict[str, Any]] = {
    "Pod": pod(
        "a",
        container({"cpu": "1"}, {"memory": "1Gi"}, ports=[{"containerPort": 1, "hostPort": 2}]),
        nodeSelector={"a": "b"},
        tolerations=[{"key": "k", "operator": "Exists"}],
        affinity={
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "t", "labelSelector": {"matchLabels": {"a": "b"}}}
                ]
            }
        },
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        nodeName="n1",
    ),
    "Node": node(taints=[{"key": "k", "effect": "NoSchedule"}]),
    "Job": job(),
    "DaemonSet": {"metadata": meta("d"), "spec": {"template": template(container({"cpu": "1"}))}},
    "JobSet": {
        "metadata": meta("s"),
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": job()["spec"]}}]},
    },
    "PodGroup": {"metadata": meta("g"), "spec": {"minMember": 2}},
    "Workload": {
        "metadata": meta("w"),
        "spec": {"podSets": [{"name": "main", "count": 2, "minCount": 1, "template": template()}]},
        "status": {"conditions": [condition("Admitted")]},
    },
    "ClusterQueue": {
        "metadata": meta("q", namespace=""),
        "spec": {
            "cohortName": "c",
            "resourceGroups": [
                {"flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}
            ],
        },
    },
    "Cohort": {"metadata": meta("c", namespace=""), "spec": {"parentName": "d"}},
    "LocalQueue": {"metadata": meta("default"), "spec": {"clusterQueue": "q"}},
    "ProvisioningRequest": {
        "metadata": meta("r"),
        "spec": {"podSets": [{"podTemplateRef": {"name": "t"}, "count": 2}], "parameters": {"a": "b"}},
        "status": {"conditions": [condition("Accepted")]},
    },
    "PodTemplate": {"metadata": meta("t"), "template": template()},
    "PodDisruptionBudget": {
        "metadata": meta("b"),
        "spec": {"selector": {"matchLabels": {"a": "b"}}},
        "status": {"disruptionsAllowed": 1},
    },
    "PersistentVolumeClaim": {
        "metadata": meta("c"),
        "spec": {"volumeName": "v"},
        "status": {"phase": "Bound"},
    },
    "PersistentVolume": {"metadata": meta("v", namespace=""), "spec": {"nodeAffinity": {"required": {}}}},
    "CSINode": {
        "metadata": meta("n1", namespace=""),
        "spec": {"drivers": [{"name": "ebs.csi.aws.com", "allocatable": {"count": 25}}]},
    },
    "StorageClass": {"metadata": meta("s", namespace=""), "volumeBindingMode": "WaitForFirstConsumer"},
    "Namespace": {"metadata": meta("user-ada", namespace="", labels={"a": "b"})},
    "PriorityClass": {"metadata": meta("p", namespace=""), "value": 1},
}


def _places(thing: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    return [path, *(place for key, value in inside for place in _places(value, (*path, key)))]


def _put(thing: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(thing) if isinstance(thing, dict) else list(thing)
    copy[path[0]] = _put(thing[path[0]], path[1:], value)
    return copy


_ODD: some.SearchStrategy[Any] = some.sampled_from(
    [
        None,
        True,
        -1,
        2**70,
        1.5,
        1e400,
        "",
        "x",
        "NaN",
        "1" * 300,
        "\ud800",
        [],
        [None],
        {},
        {"a": None},
        [[[]]],
    ]
)


@settings(max_examples=300, deadline=None)
@example(("ProvisioningRequest", [(("metadata",), {})]))
@given(some.sampled_from([*KINDS]).flatmap(
    lambda kind: some.tuples(
        some.just(kind), some.lists(some.tuples(some.sampled_from(_places(KINDS[kind])), _ODD), max_size=3)
    )
))  # fmt: skip
def test_no_object_however_odd_raises(case: tuple[str, list[tuple[tuple[Any, ...], Any]]]) -> None:
    kind, changes = case
    thing: Any = KINDS[kind]
    for path, value in changes:
        try:
            thing = _put(thing, path, value)
        except (KeyError, IndexError, TypeError):  # a change before took the place away
            continue
    decoder = Decoder()
    good = KINDS[kind]
    name = "user-bob" if good["metadata"].get("namespace") else ""
    other = {**good, "metadata": meta("other", namespace=name)}
    found = decoder.list(kind, listed(thing, other))
    assert (f"{name}/other" if name else "other") in found.objects
    assert len({*found.objects, *found.faults}) == 2 or not isinstance(thing, dict)
    snapshot({kind: found.objects}, {}, {}, {}, 1.0, found.faults)


def test_every_kind_is_read() -> None:
    decoder = Decoder()
    for kind, written in KINDS.items():
        key, found, version = decoder.item(kind, raw(written))
        assert found is not None
        assert (key.rpartition("/")[2], version) == (written["metadata"]["name"], "7")
    with pytest.raises(KeyError):
        decoder.list("ConfigMap", listed())
