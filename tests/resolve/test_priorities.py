"""Classes of work: which GPUs each is given, newest first, and which one is meant where none is named."""

from __future__ import annotations

from strategies.reading import resolved
from strategies.specs import Plain

from infra.model.kubernetes import PriorityClass


def classes(**stated: Plain) -> dict[str, PriorityClass]:
    """By name, of a spec that states these; in their order."""
    kubernetes = {"priority_classes": stated} if stated else {}
    cluster = resolved(sites={"us-west-2": {"kind": "aws"}}, images={"cpu": {}}, kubernetes=kubernetes)
    return {work.name: work for work in cluster.kubernetes.priority_classes}


def test_a_spec_without_classes_has_three() -> None:
    low, normal, high = classes().values()
    assert [low.name, normal.name, high.name] == ["low", "normal", "high"]
    assert low.gpu_classes == ("old",)
    assert normal.gpu_classes == ("standard", "old")
    assert high.gpu_classes == ("new", "standard", "old")
    assert [low.default, normal.default, high.default] == [False, True, False]
    assert [low.yields, normal.yields, high.yields] == [True, False, False]
    assert not low.preempts


def test_classes_of_the_spec_stand_alone_the_lowest_first() -> None:
    middle: Plain = {"value": 10, "at_least": "standard", "gpu_class": "standard"}
    stated = classes(urgent={"value": 50, "at_least": "new"}, middle=middle)
    assert [*stated] == ["middle", "urgent"]
    assert stated["urgent"].gpu_classes == ("new",)
    assert stated["middle"].gpu_classes == ("standard",)
    # None has the value that Kubernetes gives work without a class.
    assert not any(work.default or work.yields for work in stated.values())


def test_kubernetes_takes_one_default() -> None:
    tied = classes(b={"value": 0}, a={"value": 0})
    assert [work.name for work in tied.values() if work.default] == ["a"]
