"""What pods ask for: the scheduler's formula, limits that stand for requests, resizes."""

from __future__ import annotations

from autoscaler.apiobjects import asked, container, pod, shape_of
from hypothesis import given, settings
from hypothesis import strategies as some

from infra.autoscaler.observed.decoding.resource_requests import Container, total


def test_03_sidecars_run_beside_the_containers_and_the_init_containers_after_them() -> None:
    # KEP-753's own example of an order: InitContainerUse(i) = sum(sidecars before i) + i.
    inits = [
        container({"cpu": "5"}, name="first"),
        container({"cpu": "1"}, name="proxy", restartPolicy="Always"),
        container({"cpu": "4"}, name="second"),
        container({"cpu": "2"}, name="logs", restartPolicy="Always"),
        container({"cpu": "3"}, name="third"),
    ]
    assert asked(pod("work", container({"cpu": "1"}), initContainers=inits)) == {"cpu": 6000}
    assert asked(pod("work", container({"cpu": "7"}), initContainers=inits)) == {"cpu": 10000}


def test_03_overhead_comes_on_top() -> None:
    found = asked(pod("work", container({"cpu": "1"}), overhead={"cpu": "250m", "memory": "120Mi"}))
    assert found == {"cpu": 1250, "memory": 120 * 2**20}


def test_03_limits_stand_for_requests_that_are_not_there() -> None:
    found = asked(pod("work", container({"cpu": "1"}, {"cpu": "4", "memory": "2Gi", "nvidia.com/gpu": "2"})))
    assert found == {"cpu": 1000, "memory": 2 * 2**30, "nvidia.com/gpu": 2}


def test_03_nothing_asked_for_is_not_there() -> None:
    assert asked(pod("work", container({"cpu": "0", "nvidia.com/gpu": "0"}))) == {}
    assert shape_of(pod("work", container())).requests == (("pods", 1),)


def test_03_what_the_pod_says_for_itself_goes_before_the_sum() -> None:
    whole = {"requests": {"cpu": "8"}, "limits": {"cpu": "9", "memory": "4Gi"}}
    found = asked(
        pod("work", container({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}), resources=whole)
    )
    # Memory: the containers' request goes before the pod's limit (defaultPodRequests).
    assert found == {"cpu": 8000, "memory": 2**30, "nvidia.com/gpu": 1}


def test_03_a_limit_of_the_pod_stands_where_nobody_asks() -> None:
    whole = {"limits": {"memory": "4Gi", "hugepages-2Mi": "64Mi", "nvidia.com/gpu": "8"}}
    found = asked(pod("work", container({"cpu": "1"}, {"hugepages-2Mi": "32Mi"}), resources=whole))
    assert found == {"cpu": 1000, "memory": 4 * 2**30, "hugepages-2Mi": 64 * 2**20}


def test_03_while_a_pod_is_resized_the_most_counts() -> None:
    status = {
        "containerStatuses": [
            {
                "name": "main",
                "allocatedResources": {"cpu": "2", "memory": "1Gi"},
                "resources": {"requests": {"cpu": "1", "memory": "3Gi"}},
            }
        ]
    }
    assert asked(pod("work", container({"cpu": "1", "memory": "1Gi"}), status=status, nodeName="n")) == {
        "cpu": 2000,
        "memory": 3 * 2**30,
    }


def test_03_devices_that_are_claimed_are_asked_for() -> None:
    found = asked(pod("work", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}]))
    assert found == {"cpu": 1000, "resource.k8s.io/claims": 1}


_AMOUNTS = some.dictionaries(
    some.sampled_from(["cpu", "memory", "x/y"]), some.integers(0, 10**12), max_size=3
)
_CONTAINERS = some.lists(some.builds(Container, _AMOUNTS, some.booleans()), max_size=4)


@settings(deadline=None)
@given(_CONTAINERS, _CONTAINERS)
def test_03_no_phase_gets_less_than_it_needs_and_none_sets_the_sum_alone(
    containers: list[Container], inits: list[Container]
) -> None:
    """Every moment of a pod's life fits into its request, and one of them needs all of each resource."""
    moments: list[list[Container]] = [[*containers, *(each for each in inits if each.sidecar)]]
    moments += [
        [*(other for other in inits[:number] if other.sidecar), each] for number, each in enumerate(inits)
    ]
    found = dict(total(containers, inits))
    for name in ("cpu", "memory", "x/y"):
        needs = max(sum(each.requests.get(name, 0) for each in moment) for moment in moments)
        unit = 10**6 if name == "cpu" else 10**9
        assert found.get(name, 0) == -(-needs // unit)
