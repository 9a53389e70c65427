"""What a real API server writes into its audit log, by the cookbook's policy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from drive.kubernetes.conftest import AUDIT_LOG
from kube.api import Api, RefusedError
from kube.plane import Plane

SECRETS = "/api/v1/namespaces/default/secrets"


class Audited:
    """A server, and what it wrote."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self.log = plane.folder / AUDIT_LOG

    def somebody(self, name: str, *groups: str) -> Api:
        """With all rights, which is not what is looked at here."""
        return self._plane.somebody(name, *groups, "system:masters")

    def of(self, user: str) -> list[tuple[str, str, str, bool]]:
        """What somebody is logged with: verb, resource, level, and whether with the request's body."""
        rows = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [
            (row["verb"], row.get("objectRef", {}).get("resource", ""), row["level"], "requestObject" in row)
            for row in rows
            if row["user"]["username"] == user
        ]


@pytest.fixture
def audited(plane: Plane) -> Audited:
    return Audited(plane)


def secret(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        "stringData": {"word": "sesame"},
    }


def test_what_people_do_is_there_and_not_what_secrets_say(audited: Audited) -> None:
    auditee = audited.somebody("auditee")
    auditee.create(secret("hers"))
    auditee.call("GET", f"{SECRETS}/hers")
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    auditee.create({**account, "metadata": {"name": "robot", "namespace": "default"}})
    auditee.call("GET", "/api/v1/nodes")
    assert audited.of("auditee") == [
        ("create", "secrets", "Metadata", False),
        ("get", "secrets", "Metadata", False),
        ("create", "serviceaccounts", "Request", True),
        ("list", "nodes", "Metadata", False),
    ]
    assert "sesame" not in audited.log.read_text()


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("system:node:titan-01", "system:nodes"),
        ("system:kube-controller-manager", "system:authenticated"),
        ("system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccounts:kube-system"),
    ],
)
def test_what_the_machinery_reads_is_not(audited: Audited, name: str, group: str) -> None:
    who = audited.somebody(name, group)
    for path in (SECRETS, "/api/v1/configmaps", "/api/v1/pods"):
        who.call("GET", path)
    with pytest.raises(RefusedError, match="404"):
        who.call("GET", f"{SECRETS}/none")
    assert audited.of(name) == []


def test_of_other_programs_only_who_reads_secrets_and_what_they_change(audited: Audited) -> None:
    name = "system:serviceaccount:kueue-system:kueue"
    kueue = audited.somebody(name, "system:serviceaccounts", "system:serviceaccounts:kueue-system")
    kueue.call("GET", "/api/v1/pods")
    kueue.call("GET", SECRETS)
    kueue.create(secret("its"))
    assert audited.of(name) == [
        ("list", "secrets", "Metadata", False),
        ("create", "secrets", "Metadata", False),
    ]


def test_what_a_node_makes_is_but_not_its_reviews(audited: Audited) -> None:
    name = "system:node:titan-02"
    node = audited.somebody(name, "system:nodes")
    review = {"spec": {"user": "ada", "resourceAttributes": {"verb": "get", "resource": "nodes"}}}
    where = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    node.call(
        "POST", where, {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", **review}
    )
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
    node.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", token)
    assert audited.of(name) == []
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "of-a-node", "namespace": "default"},
    }
    node.create(body)
    assert audited.of(name) == [("create", "configmaps", "Metadata", False)]
