"""What a real API server writes into its audit log, by the cookbook's policy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drive.kubernetes.apiserver import running
from render.kubernetes.policy_world import Api, RefusedError

from infra.drive.kubernetes.secrets import Keys

POLICY = Path(__file__).parents[3] / "cookbooks" / "kubernetes" / "files" / "audit-policy.yaml"
SECRETS = "/api/v1/namespaces/default/secrets"


class Audited:
    """A server, and what it wrote."""

    def __init__(self, server: Any, keys: Keys, folder: Path) -> None:
        self._parts = (server, keys, folder)
        self.log = folder / "audit.log"

    def somebody(self, name: str, *groups: str) -> Api:
        """With all rights, which is not what is looked at here."""
        return Api(*self._parts, name, *groups, "system:masters")

    def of(self, user: str) -> list[tuple[str, str, str, bool]]:
        """What somebody is logged with: verb, resource, level, and whether with the request's body."""
        rows = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [
            (row["verb"], row.get("objectRef", {}).get("resource", ""), row["level"], "requestObject" in row)
            for row in rows
            if row["user"]["username"] == user
        ]


@pytest.fixture(scope="module")
def audited(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    folder = tmp_path_factory.mktemp("audit")
    words = [
        f"--audit-policy-file={POLICY}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-mode=blocking-strict",
    ]
    with running(folder, keys, more=words) as server:
        yield Audited(server, keys, folder)


def secret(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        "stringData": {"word": "sesame"},
    }


def test_what_people_do_is_there_and_not_what_secrets_say(audited: Audited) -> None:
    ada = audited.somebody("ada")
    ada.create(secret("hers"))
    ada.call("GET", f"{SECRETS}/hers")
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    ada.create({**account, "metadata": {"name": "robot", "namespace": "default"}})
    ada.call("GET", "/api/v1/nodes")
    assert audited.of("ada") == [
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
