"""An agent reports of the node that it runs on and of no other, as a real API server sees it: with a token
that is bound to the agent's pod."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from golden_clusters import golden
from kube.api import refused
from kube.plane import Plane
from kube_tools import templated
from render.kubernetes.policy_world import world
from waiting import until

from infra.render.kubernetes import addon_objects, charts
from infra.render.kubernetes.manifests import of

NAMESPACE = "node-feature-discovery"
AGENT = f"{NAMESPACE}-worker"
GROUP = "nfd.k8s-sigs.io"
HERE, THERE = "titan-a01", "titan-a02"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """With the chart's kinds, and its accounts and their rights; the agent runs on one of two nodes."""
    cluster = golden("research")
    container = {"name": "agent", "image": "example.org/agent"}
    spec = {"serviceAccountName": AGENT, "nodeName": HERE, "containers": [container]}
    with world(cluster, tmp_path_factory.mktemp("features")) as here:
        here.admin.apply(of("v1", "Namespace", NAMESPACE))
        values = charts.values(cluster)[NAMESPACE]
        for each in templated(NAMESPACE, values, f"--namespace={NAMESPACE}", "--no-hooks"):
            if each["kind"] in ("CustomResourceDefinition", "ServiceAccount", "Role", "RoleBinding"):
                here.admin.apply(each)
        for name in (HERE, THERE):
            here.admin.apply(of("v1", "Node", name))
        here.admin.apply(of("v1", "Pod", "agent", namespace=NAMESPACE, spec=spec))
        for each in addon_objects.features(cluster)["policy.yaml"]:
            here.admin.apply(each)
        yield here


def token(here: Plane, *, bound: bool) -> str:
    """The agent's; of its pod, as kubelets ask for it, or of nothing."""
    pod = here.admin.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/agent")
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": pod["metadata"]["uid"]}
    bound_to = {"boundObjectRef": reference} if bound else {}
    return here.admin.token(NAMESPACE, AGENT, **bound_to)


def report(here: Plane, bearer: str, node: str) -> int:
    """The API server's code for a report of a node by whoever has the token."""
    labels = {"nfd.node.kubernetes.io/node-name": node}
    body = of(f"{GROUP}/v1alpha1", "NodeFeature", node, namespace=NAMESPACE, labels=labels, spec={})
    error = refused(here.bearer(bearer).create, body, dry=True)
    return error.code if error else 201


def test_an_agent_reports_of_its_own_node_alone(here: Plane) -> None:
    bearer = token(here, bound=True)
    # The API server hears of a new kind and a new policy a moment later.
    until(lambda: report(here, bearer, HERE) == 201)
    until(lambda: report(here, bearer, THERE) == 422)
    assert report(here, bearer, HERE) == 201


def test_a_token_of_no_pod_reports_of_nothing(here: Plane) -> None:
    bearer = token(here, bound=False)
    until(lambda: report(here, bearer, HERE) == 422)


def test_who_administers_may(here: Plane) -> None:
    each = of(f"{GROUP}/v1alpha1", "NodeFeature", "by-hand", namespace=NAMESPACE, spec={})
    until(lambda: not refused(here.admin.create, each, dry=True))
