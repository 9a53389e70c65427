"""Upgrades: what the plan warns of, pools whose images lag behind, and nodes of instances that are gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from golden_clusters import golden
from kube.api import node
from msgspec import structs

from infra.catalogue import addons
from infra.commands.cluster import status as telling
from infra.commands.cluster import upgrade
from infra.commands.cluster.up import tokenless
from infra.commands.cluster_access import Reach
from infra.drive.kubernetes import status
from infra.drive.kubernetes import upgrade as upgrades
from infra.drive.kubernetes.api import Api
from infra.drive.kubernetes.kubectl import at_least
from infra.errors import DriveError
from infra.model import Cluster


@pytest.fixture(scope="module")
def research() -> Cluster:
    return golden("research")


def at(cluster: Cluster, version: str) -> Cluster:
    return structs.replace(cluster, kubernetes=structs.replace(cluster.kubernetes, version=version))


def test_charts_that_do_not_list_the_minor_are_named(research: Cluster) -> None:
    assert upgrade.unlisted(at(research, "1.36")) == []
    (said,) = upgrade.unlisted(at(research, "1.37"))
    assert re.search(r"cert-manager.*v1\.21\.1.* 1\.33 to 1\.36", said)
    assert "kubernetes.addons.cert-manager.version" in said


def test_minors_are_numbers_and_their_ends_count() -> None:
    chart = replace(addons.chart("kueue"), minors=("1.9", "1.36"))
    assert [chart.lists(minor) for minor in ("1.8", "1.9", "1.10", "1.36", "1.37")] == [
        False, True, True, True, False,
    ]  # fmt: skip
    assert replace(chart, minors=()).lists("1.99"), "nothing is known to the contrary"


def test_pools_need_a_store_that_their_instances_can_ask(research: Cluster) -> None:
    pools = [pool.name for pool in research.pools if pool.groups]
    assert pools
    assert (
        tokenless(structs.replace(research, secrets=structs.replace(research.secrets, store="local")))
        == pools
    )
    assert tokenless(structs.replace(research, secrets=structs.replace(research.secrets, store="ssm"))) == []


def test_status_names_nodes_that_stayed_behind() -> None:
    assert telling.behind("v1.35.4", "v1.36.3")
    assert not telling.behind("v1.36.1", "v1.36.3")
    assert not telling.behind("", "v1.36.3"), "one that has not joined yet"


@pytest.mark.parametrize(
    ("old", "whose", "baked"),
    [
        (node("x", version="v1.35.4", site="rack-a"), "rack-a", False),
        (node("x", version="v1.35.4", site="us-west-2", pool="a100"), "a100", True),
    ],
)
def test_status_says_how_nodes_that_stayed_behind_follow(
    old: dict[str, Any], whose: str, baked: bool
) -> None:
    objects: dict[str, Any] = {"/api/v1/nodes": [old]}
    api = SimpleNamespace(list=lambda path, **_: objects.get(path, []))
    (row,) = status.by_place(status.nodes(cast("Api", api)))
    line = telling.stayed_behind(row, "v1.36.3")
    assert f"1 nodes of {whose} are at v1.35.4" in line
    assert ("image" in line) == baked


# -- A pool that was rolled ----------------------------------------------------------------------------------


@pytest.fixture
def reach(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reach]:
    """A cluster whose pools are rolled at once, by AWS alone."""
    monkeypatch.setattr("infra.commands.images.roll", lambda *_words, **_options: 0)
    monkeypatch.setattr(upgrade, "GONE", 0)
    project = SimpleNamespace(environment=SimpleNamespace(options="--env test"))
    yield cast("Reach", SimpleNamespace(api=api, project=project))
    for each in list(api.list("/api/v1/nodes")):
        if each["metadata"]["name"].startswith("i-"):
            api.delete(f"/api/v1/nodes/{each['metadata']['name']}")


def create(api: Api, name: str, **about: Any) -> None:
    api.create("/api/v1/nodes", node(name, pool="a100", **about))


def test_nodes_of_instances_that_were_replaced_are_forgotten(reach: Reach, api: Api) -> None:
    create(api, "i-old", version="v1.35.4", ready=False)
    create(api, "i-new", version="v1.36.3")
    assert upgrade._pool(reach, "a100", "1.36") == "rolled to 1.36"
    assert api.find("/api/v1/nodes/i-old") is None
    assert api.find("/api/v1/nodes/i-new") is not None


def test_a_pool_from_an_old_image_is_said(reach: Reach, api: Api) -> None:
    create(api, "i-fresh", version="v1.35.4")
    with pytest.raises(DriveError, match=r"a100 .*v1\.35\.4"):
        upgrade._pool(reach, "a100", "1.36")
    assert api.find("/api/v1/nodes/i-fresh") is not None


@pytest.mark.parametrize(
    ("version", "wanted", "reached"),
    [
        ("v1.36.2", "1.36", True),
        ("v1.35.9", "1.36", False),
        ("v1.36.1", "1.36.2", False),
        ("v1.36.2", "1.36.2", True),
        ("v1.36.10-gke.1", "1.36.2", True),
        ("v1.37.0", "1.36.2", True),
    ],
)
def test_a_node_is_behind_a_release_by_its_patch_too(version: str, wanted: str, reached: bool) -> None:
    assert at_least(version, wanted) == reached


def test_the_plan_tells_of_charts_first_and_names_nodes_that_lack_a_patch(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.drive.kubernetes.status.etcd", lambda *_: "not asked")
    now = status.version(api).removeprefix("v")
    newer = f"{now.rpartition('.')[0]}.{int(now.rpartition('.')[2]) + 1}"
    create(api, "i-patch", version=f"v{now}")
    create(api, "i-patched", version=f"v{newer}")
    plan = upgrades.plan(api, cast("Any", None), newer, ["the add-on x"])
    assert {"i-patch", "i-patched"} & {node.name for node in plan.behind} == {"i-patch"}
    assert plan.warnings[0] == "the add-on x"
    assert not plan.done
    for name in ("i-patch", "i-patched"):
        api.delete(f"/api/v1/nodes/{name}")
