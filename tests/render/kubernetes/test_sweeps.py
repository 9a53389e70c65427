"""The account of conductors: where it is, and with what. What it may do is held against a real API server in
`tests/client/test_sweep_in_cluster.py`."""

from __future__ import annotations

from golden_clusters import golden
from msgspec.structs import replace
from strategies.outputs import outputs_for

from infra.model import NO_OUTPUTS
from infra.render.kubernetes import sweeps


def test_each_namespace_with_a_store_has_the_account_and_its_rights() -> None:
    cluster = golden("research")
    objects = [one for each in sweeps.objects(cluster, outputs_for(cluster)).values() for one in each]
    assert cluster.web_identity is not None
    namespaces = {*cluster.web_identity.roles}
    accounts = {one["metadata"]["namespace"] for one in objects if one["kind"] == "ServiceAccount"}
    assert accounts == namespaces
    bindings = {one["metadata"]["namespace"]: one for one in objects if one["kind"] == "RoleBinding"}
    assert {*bindings} == {*namespaces, "causeway-system"}
    for namespace in namespaces:
        # Nobody's but its own.
        (subject,) = bindings[namespace]["subjects"]
        assert (subject["name"], subject["namespace"]) == ("sweep", namespace)
    (role,) = (one for one in objects if one["kind"] == "ClusterRole")
    verbs = {(rule["apiGroups"][0], rule["resources"][0]): {*rule["verbs"]} for rule in role["rules"]}
    assert not any({"delete", "deletecollection", "*"} & each for each in verbs.values())


def test_without_mlflow_or_an_image_there_is_none() -> None:
    cluster = golden("research")
    assert cluster.research is not None
    off = replace(cluster, tracking=None)
    assert sweeps.objects(off, outputs_for(off)) == {}
    assert sweeps.objects(cluster, NO_OUTPUTS) == {}  # its database is not there yet
    bare = replace(cluster, research=replace(cluster.research, tools=None))
    assert sweeps.objects(bare, outputs_for(bare)) == {}
