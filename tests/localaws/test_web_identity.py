"""From a token of the cluster to a folder of the store: real Terraform makes the issuer and the roles, a real
API server signs, what we drive publishes its keys, and the embedded AWS verifies them."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import boto3
import pytest
from botocore.exceptions import ClientError
from drive.kubernetes.apiserver import running
from golden_clusters import golden
from permissions.policy import Request, allowing, read
from render.kubernetes.policy_world import Api, RefusedError

from infra.drive import localaws
from infra.drive.kubernetes import issuer as issuers
from infra.drive.kubernetes import secrets
from infra.drive.secrets.local import LocalStore
from infra.model import Cluster
from infra.render.kubernetes import kubeadm, namespaces, research
from infra.render.kubernetes.manifests import SYSTEM
from localaws.place import Place

pytestmark = [pytest.mark.slow, pytest.mark.heavy(minutes=1)]

MODULE = Path(__file__).parents[2] / "templates/terraform/modules/web_identity"
OWN = "https://kubernetes.default.svc.cluster.local"


@dataclass
class World:
    """A cluster whose tokens AWS takes."""

    cluster: Cluster
    place: Place
    admin: Api
    ada: Api
    alan: Api

    def aws(self, service: str, **credentials: str) -> Any:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", **credentials}
        return boto3.client(service, region_name="us-west-2", endpoint_url=self.place.server.address, **keys)

    @property
    def bucket(self) -> str:
        assert self.cluster.storage.work is not None
        return self.cluster.storage.work.bucket

    def publish(self) -> str:
        assert self.cluster.web_identity is not None
        api = SimpleNamespace(get=lambda path: self.admin.call("GET", path))
        return issuers.publish(cast("Any", api), self.aws("s3"), self.cluster.web_identity.issuer)

    def role(self, namespace: str) -> str:
        roles = json.loads((self.place.folder / "terraform.tfstate").read_text())["outputs"]["roles"]["value"]
        return str(roles[namespace])

    def token(
        self, who: Api, namespace: str, *audiences: str, account: str = "work", seconds: int = 600
    ) -> str:
        spec = {"audiences": [*audiences], "expirationSeconds": seconds}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(who.call("POST", path, body)["status"]["token"])

    def exchange(self, token: str, namespace: str) -> Any:
        """A session at S3 by a token."""
        found = self.aws("sts").assume_role_with_web_identity(
            RoleArn=self.role(namespace), RoleSessionName="test", WebIdentityToken=token
        )["Credentials"]
        return self.aws(
            "s3",
            aws_access_key_id=found["AccessKeyId"],
            aws_secret_access_key=found["SecretAccessKey"],
            aws_session_token=found["SessionToken"],
        )

    def refused(self, token: str, namespace: str) -> str:
        with pytest.raises(ClientError) as raised:
            self.exchange(token, namespace)
        return str(raised.value.response["Error"]["Code"])


@pytest.fixture(scope="module")
def world(settle: Callable[..., Place], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    cluster = golden("research")
    assert cluster.web_identity is not None
    assert cluster.storage.work is not None
    place = settle("web_identity")
    for file in MODULE.glob("*.tf"):
        if file.name != "versions.tf":
            shutil.copy(file, place.folder)
    values = {
        "issuer": {"bucket": cluster.web_identity.issuer.bucket, "url": cluster.web_identity.issuer.url},
        "store": {"bucket": cluster.storage.work.bucket},
        "volumes": {
            "checkpoints": {"bucket": "checkpoints", "read_only": False},
            "sets": {"bucket": "sets", "read_only": True},
        },
        "roles": dict(cluster.web_identity.roles),
    }
    (place.folder / "terraform.tfvars.json").write_text(json.dumps(values))
    done = place.apply()
    assert done.code == 0, done
    flags: dict[str, list[str]] = {}
    for each in kubeadm.cluster_configuration(cluster)["apiServer"]["extraArgs"]:
        flags.setdefault(each["name"], []).append(each["value"])
    folder = tmp_path_factory.mktemp("issuer")
    keys = secrets.made(
        LocalStore("test", folder / ".secrets", {"XDG_CONFIG_HOME": str(folder / "config")}),
        datetime.now(UTC),
    )
    more = [f"--{name}={flags[name][0]}" for name in ("service-account-jwks-uri", "api-audiences")]
    with running(folder, keys, more=more, issuers=flags["service-account-issuer"]) as server:
        parts = (server, keys, folder)
        admin = Api(*parts, "admin", "system:masters")
        for name in ("teams.yaml", "people.yaml"):
            for each in namespaces.objects(cluster)[name]:
                admin.create(each)
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        for documents in research.objects(cluster).values():
            for each in documents:
                admin.create(each)
        admin.create(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "other", "namespace": "user-alan"},
            }
        )
        yield World(cluster, place, admin, Api(*parts, "ada"), Api(*parts, "alan"))


def claims(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


def test_before_its_keys_are_published_no_token_is_taken(world: World) -> None:
    token = world.token(world.ada, "user-ada", research.AUDIENCE)
    assert world.refused(token, "user-ada") == "InvalidIdentityToken"
    assert world.publish() == "2 of 2 documents written"
    assert world.publish() == "as they were"


def test_a_person_gets_the_folder_of_their_namespace(world: World) -> None:
    world.publish()
    assert world.cluster.web_identity is not None
    token = world.token(world.ada, "user-ada", research.AUDIENCE)
    assert claims(token)["iss"] == world.cluster.web_identity.issuer.url
    bucket = world.bucket
    s3 = world.exchange(token, "user-ada")
    s3.put_object(Bucket=bucket, Key="code/user-ada/x", Body=b"hers")
    assert s3.get_object(Bucket=bucket, Key="code/user-ada/x")["Body"].read() == b"hers"
    group = world.token(world.ada, "team-engineers", research.AUDIENCE)
    world.exchange(group, "team-engineers").put_object(
        Bucket=bucket, Key="code/team-engineers/x", Body=b"ours"
    )


def test_nobody_gets_a_token_of_another_namespace(world: World) -> None:
    for namespace in ("user-ada", "team-engineers"):
        with pytest.raises(RefusedError, match="403"):
            world.token(world.alan, namespace, research.AUDIENCE)
    with pytest.raises(RefusedError, match="403"):
        world.token(world.ada, "user-ada", research.AUDIENCE, account="default")


def test_a_token_is_for_its_namespace_its_audience_and_its_issuers_key(world: World) -> None:
    world.publish()
    good = world.token(world.alan, "user-alan", research.AUDIENCE)
    assert world.refused(good, "user-ada") == "AccessDenied"
    assert world.refused(world.token(world.alan, "user-alan"), "user-alan") == "InvalidIdentityToken"
    head, _, signature = good.split(".")
    forged = base64.urlsafe_b64encode(
        json.dumps({**claims(good), "sub": "system:serviceaccount:user-ada:work"}).encode()
    )
    assert (
        world.refused(f"{head}.{forged.decode().rstrip('=')}.{signature}", "user-ada")
        == "InvalidIdentityToken"
    )
    assert world.refused("nonsense", "user-alan") == "InvalidIdentityToken"
    default = world.token(world.admin, "user-alan", research.AUDIENCE, account="other")
    assert world.refused(default, "user-alan") == "AccessDenied"


def test_tokens_of_the_issuer_before_are_good_for_the_api_still(world: World) -> None:
    """What pods hold while the API server gets the new issuer: it signs with the new one, and takes both."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    for audiences in ((), (OWN,)):
        token = world.token(world.ada, "user-ada", *audiences)
        found = world.admin.call(
            "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {**review, "spec": {"token": token}}
        )
        assert found["status"].get("authenticated"), found
    token = world.token(world.ada, "user-ada", research.AUDIENCE)
    found = world.admin.call(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {**review, "spec": {"token": token}}
    )
    assert not found["status"].get("authenticated"), "a token for AWS is none for this API"


def test_a_role_is_for_the_folders_of_its_namespace(world: World) -> None:
    """The embedded AWS lets any session do anything, so the policies that it was given are judged here."""
    store = f"arn:aws:s3:::{world.bucket}"
    role = world.role("user-ada").rpartition("/")[2]
    found = world.aws("iam").get_role_policy(RoleName=role, PolicyName="use-own-folders")
    statements = read(role, json.dumps(found["PolicyDocument"]))

    def may(action: str, resource: str, **context: str) -> bool:
        keys = tuple((name.replace("_", ":"), value) for name, value in context.items())
        return allowing(statements, Request(action, resource, keys)) != []

    for folder in ("code", "runs"):
        assert may("s3:GetObject", f"{store}/{folder}/user-ada/x")
        assert may("s3:PutObject", f"{store}/{folder}/user-ada/x")
        assert may("s3:ListBucket", store, s3_prefix=f"{folder}/user-ada/")
        for other in ("user-alan", "user-ada2", "team-engineers"):
            assert not may("s3:GetObject", f"{store}/{folder}/{other}/x")
            assert not may("s3:PutObject", f"{store}/{folder}/{other}/x")
            assert not may("s3:ListBucket", store, s3_prefix=f"{folder}/{other}/")
    # How the client looks for an archive.
    assert may("s3:ListBucket", store, s3_prefix="code/user-ada/0123abcd.tar.gz")
    assert not may("s3:ListBucket", store, s3_prefix="")
    assert not may("s3:ListBucket", store)
    assert may("s3:DeleteObject", f"{store}/runs/user-ada/x")
    assert not may("s3:DeleteObject", f"{store}/code/user-ada/x"), "others' runs may be waiting with it"


def test_a_pods_volumes_are_the_folders_of_its_namespace(world: World) -> None:
    """The kubelet asks for a token of the pod's account for the driver; here, an administrator does."""
    world.publish()
    token = world.token(world.admin, "user-ada", research.AUDIENCE, account="default")
    world.exchange(token, "user-ada")
    assert world.refused(token, "user-alan") == "AccessDenied"
    role = world.role("user-ada").rpartition("/")[2]
    found = world.aws("iam").get_role_policy(RoleName=role, PolicyName="use-volumes")
    statements = read(role, json.dumps(found["PolicyDocument"]))

    def may(action: str, resource: str, **context: str) -> bool:
        keys = tuple((name.replace("_", ":"), value) for name, value in context.items())
        return allowing(statements, Request(action, resource, keys)) != []

    for bucket, writes in (("checkpoints", True), ("sets", False)):
        arn = f"arn:aws:s3:::{bucket}"
        assert may("s3:ListBucket", arn, s3_prefix="user-ada/")
        assert may("s3:GetObject", f"{arn}/user-ada/x")
        for action in ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"):
            assert may(action, f"{arn}/user-ada/x") is writes
            assert not may(action, f"{arn}/user-alan/x")
        assert not may("s3:GetObject", f"{arn}/user-alan/x")
        assert not may("s3:GetObject", f"{arn}/user-ada2/x")
        assert not may("s3:ListBucket", arn, s3_prefix="")
        assert not may("s3:ListBucket", arn, s3_prefix="user-alan/")
    assert not may("s3:GetObject", "arn:aws:s3:::other/user-ada/x")


def test_everybody_reads_what_the_cluster_offers(world: World) -> None:
    found = world.alan.call("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps/{research.NAME}")
    offered = json.loads(found["data"]["cluster.json"])
    assert (offered["version"], offered["default_image"]) == (research.VERSION, "pytorch")
    with pytest.raises(RefusedError, match="403"):
        world.alan.call("GET", f"/api/v1/namespaces/{SYSTEM}/configmaps")


def test_applied_once_it_stays_as_it_is_and_goes_without_a_trace(world: World) -> None:
    """Last: it takes the world away."""
    assert (done := world.place.plan()).code == 0, done
    (world.place.folder / "issuer.tf").write_text(
        (world.place.folder / "issuer.tf")
        .read_text()
        .replace("prevent_destroy = true", "prevent_destroy = false")
    )
    for key in ("openid/v1/jwks", ".well-known/openid-configuration"):
        assert world.cluster.web_identity is not None
        world.aws("s3").delete_object(Bucket=world.cluster.web_identity.issuer.bucket, Key=key)
    for key in ("code/user-ada/x", "code/team-engineers/x"):
        world.aws("s3").delete_object(Bucket=world.bucket, Key=key)
    assert (done := world.place.destroy()).code == 0, done
    left = localaws.inventory(world.place.server)
    # Sessions and their keys end by themselves.
    assert {*left.pop("global", {})} <= {"iam.access_keys", "sts.assumed_roles"}
    assert left == {}
