"""From a token of the cluster to a folder of the store: real Terraform makes the issuer and the roles, a real
API server signs, what we drive publishes its keys, and the embedded AWS verifies them."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from golden_clusters import golden
from golden_folders import GOLDEN, LOCK, SPEC
from kube.api import Api, RefusedError
from kube.plane import Plane, issuer_flags, planes
from permissions.policy import Request, allowing, read
from permissions.recorded import recording
from stores import local_store
from strategies.outputs import outputs_for

from infra.drive import localaws
from infra.drive.kubernetes import issuer as published
from infra.drive.kubernetes import secrets
from infra.drive.outputs import parse
from infra.drive.secrets.local import LocalStore
from infra.load import load
from infra.model import Cluster, Outputs
from infra.model.kubernetes import WebIdentity
from infra.render import terraform
from infra.render.kubernetes import kubeadm, namespaces, research, tracking
from infra.render.kubernetes.manifests import SYSTEM
from infra.resolve import lockfile
from infra.resolve.cluster import resolve
from localaws.place import Place

MODULE = Path(__file__).parents[2] / "templates/terraform/modules/web_identity"
OWN = "https://kubernetes.default.svc.cluster.local"


@dataclass
class World:
    """A cluster whose tokens AWS takes."""

    cluster: Cluster
    place: Place
    ada: Api
    alan: Api
    plane: Plane
    store: LocalStore

    @property
    def admin(self) -> Api:
        return self.plane.admin

    def take_keys(self) -> None:
        """The API server reads the keys of tokens that are in the store."""
        for name, text in secrets.made(self.store, datetime.now(UTC)).of_tokens().items():
            (self.plane.folder / "pki" / name).write_text(text)
        self.plane.stop()
        self.plane.start()

    def have(self, *issuers: Any) -> None:
        """The spec has these issuers."""
        self.cluster = with_issuers(*issuers)
        file = self.place.folder / "terraform.tfvars.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "issuer": issuer_variable(self.cluster)}))

    def accept(self, *issuers: str) -> None:
        """The API server has these issuers, of which the first signs."""
        arguments = kubeadm.issuer_arguments(self.cluster, issuers)
        names = tuple(f"--{each['name']}=" for each in arguments)
        kept = [flag for flag in self.plane.flags if not flag.startswith(names)]
        self.plane.flags = [*kept, *(f"--{each['name']}={each['value']}" for each in arguments)]
        self.plane.stop()
        self.plane.start()

    @property
    def identity(self) -> WebIdentity:
        assert self.cluster.web_identity is not None
        return self.cluster.web_identity

    @property
    def outputs(self) -> Outputs:
        """What AWS decided, as `invoke apply` keeps it."""
        state = json.loads((self.place.folder / "terraform.tfstate").read_text())["outputs"]
        return parse({"web_identity": {name: output["value"] for name, output in state.items()}})

    def aws(self, service: str, **credentials: str) -> Any:
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", **credentials}
        return boto3.client(service, region_name="us-west-2", endpoint_url=self.place.server.address, **keys)

    @property
    def bucket(self) -> str:
        assert self.cluster.storage.work is not None
        return self.cluster.storage.work.bucket

    def publish(self) -> str:
        return published.publish(self.plane.driven, self.aws("s3"), self.identity, self.outputs)

    def role(self, namespace: str) -> str:
        return self.outputs.roles[namespace]

    def token(
        self, who: Api, namespace: str, *audiences: str, account: str = "work", seconds: int = 600
    ) -> str:
        return who.token(namespace, account, audiences=[*audiences], expirationSeconds=seconds)

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

    def accepted(self, token: str) -> bool:
        """Whether the API server takes a token."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        found = self.admin.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        return bool(found["status"].get("authenticated"))

    def refused(self, token: str, namespace: str) -> str:
        with pytest.raises(ClientError) as raised:
            self.exchange(token, namespace)
        return str(raised.value.response["Error"]["Code"])


def with_issuers(*issuers: Any) -> Cluster:
    """The cluster `research` with other issuers."""
    folder = GOLDEN / "research"
    spec = load(folder / SPEC).spec
    spec = spec.model_copy(update={"kubernetes": spec.kubernetes.model_copy(update={"issuers": issuers})})
    return resolve(spec, lockfile.parse((folder / LOCK).read_text(), LOCK), "research")[0]


def issuer_variable(cluster: Cluster) -> Any:
    """The module's variable, as it is rendered."""
    return json.loads(terraform.render(cluster)["terraform.tfvars.json"])["web_identity"]["issuer"]


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
        "tags": dict(cluster.tags),
        "issuer": issuer_variable(cluster),
        "store": {"bucket": cluster.storage.work.bucket},
        "volumes": {
            "checkpoints": {"bucket": "checkpoints", "read_only": False},
            "sets": {"bucket": "sets", "read_only": True},
        },
        "roles": dict(cluster.web_identity.roles),
        "tracking": cluster.tracking.role if cluster.tracking else None,
    }
    (place.folder / "terraform.tfvars.json").write_text(json.dumps(values))
    done = place.apply()
    assert done.code == 0, done
    folder = tmp_path_factory.mktemp("issuer")
    store = local_store(folder)
    with planes(folder, secrets.made(store, datetime.now(UTC)), flags=issuer_flags(cluster)) as plane:
        admin = plane.admin
        for name in ("system.yaml", "teams.yaml", "people.yaml"):
            for each in namespaces.objects(cluster)[name]:
                admin.create(each)
        admin.create(tracking.objects(cluster, outputs_for(cluster))["rights.yaml"][0])
        admin.apply_all(research.objects(cluster))
        about = {"name": "other", "namespace": "user-alan"}
        admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})
        yield World(cluster, place, plane.somebody("ada"), plane.somebody("alan"), plane, store)


def key_of(token: str) -> str:
    head = token.partition(".")[0]
    return str(json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))["kid"])


def claims(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


def test_before_its_keys_are_published_no_token_is_taken(world: World) -> None:
    token = world.token(world.ada, "user-ada", research.AUDIENCE)
    assert world.refused(token, "user-ada") == "InvalidIdentityToken"
    assert "2 of 2" in world.publish()
    assert " of " not in world.publish()


def test_a_person_gets_the_folder_of_their_namespace(world: World) -> None:
    world.publish()
    token = world.token(world.ada, "user-ada", research.AUDIENCE)
    assert claims(token)["iss"] == world.identity.issuers[0].url
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
    """What pods hold while masters that are older than `research:` get an issuer that AWS reads."""
    new = world.identity.issuers[0].url
    assert new is not None
    world.accept(OWN, new)
    before = world.token(world.ada, "user-ada")
    assert claims(before)["iss"] == OWN
    world.accept(new, OWN)
    for token in (before, world.token(world.ada, "user-ada"), world.token(world.ada, "user-ada", OWN)):
        assert world.accepted(token)
    token = world.token(world.ada, "user-ada", research.AUDIENCE)
    assert claims(token)["iss"] == new
    assert not world.accepted(token), "a token for AWS is none for this API"


def test_another_key_signs_and_no_token_is_lost(world: World) -> None:
    """As `cluster.rotate-signing-key` has it, with one API server for all masters."""
    store = world.store
    tokens = {"before": world.token(world.ada, "user-ada", research.AUDIENCE)}
    pods = {"before": world.token(world.ada, "user-ada", OWN)}

    def all_are_good(step: str) -> None:
        """Also those that are signed now."""
        tokens[step] = world.token(world.ada, "user-ada", research.AUDIENCE)
        pods[step] = world.token(world.ada, "user-ada", OWN)
        for token in tokens.values():
            world.exchange(token, "user-ada")
        assert [world.accepted(token) for token in pods.values()] == [True] * len(pods), step

    world.publish()
    secrets.add_token_key(store)
    all_are_good("the new key is in the store")
    world.take_keys()
    all_are_good("the new key verifies")
    assert "1 of 2" in world.publish()
    all_are_good("the new key is published")
    assert published.seconds_to_wait(world.aws("s3"), world.identity, datetime.now(UTC)) > 0
    secrets.promote_token_key(store)
    all_are_good("the new key comes first")
    world.take_keys()
    all_are_good("the new key signs")
    old, new = key_of(tokens["before"]), key_of(tokens["the new key signs"])
    assert old != new
    assert secrets.old_token_keys(store) == {old}
    assert [key_of(token) for token in tokens.values()] == [old] * 5 + [new]
    secrets.drop_token_keys(store)
    world.take_keys()
    world.publish()
    assert [world.accepted(token) for token in pods.values()] == [False] * 5 + [True]
    assert world.refused(tokens["before"], "user-ada") == "InvalidIdentityToken"
    world.exchange(tokens["the new key signs"], "user-ada")


def test_mlflow_has_a_folder_that_people_have_no_way_to(world: World) -> None:
    world.publish()
    own = world.token(world.admin, "mlflow", research.AUDIENCE, account="mlflow")
    s3 = world.exchange(own, "mlflow")
    s3.put_object(Bucket=world.bucket, Key="mlflow/workspaces/user-ada/1/x", Body=b"a model")
    assert world.refused(world.token(world.ada, "user-ada", research.AUDIENCE), "mlflow") == "AccessDenied"
    assert world.refused(own, "user-ada") == "AccessDenied"
    store = f"arn:aws:s3:::{world.bucket}"
    for namespace, folders in (
        ("mlflow", {"mlflow/workspaces/user-ada"}),
        ("user-ada", {"code/user-ada", "runs/user-ada"}),
    ):
        role = world.role(namespace).rpartition("/")[2]
        found = world.aws("iam").get_role_policy(RoleName=role, PolicyName="use-own-folders")
        statements = read(role, json.dumps(found["PolicyDocument"]))
        for folder in ("mlflow/workspaces/user-ada", "code/user-ada", "runs/user-ada"):
            request = Request("s3:PutObject", f"{store}/{folder}/x", ())
            assert bool(allowing(statements, request)) == (folder in folders)


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


def test_the_issuer_moves_behind_cloudfront_and_no_token_is_lost(
    world: World, request: pytest.FixtureRequest
) -> None:
    """As `cluster.change-issuer` has it, with one API server for all masters."""
    world.publish()
    (old,) = world.outputs.issuers.values()
    tokens: dict[str, str] = {}
    pods: dict[str, str] = {}

    def all_are_good(step: str) -> str:
        """Also those that are signed now; the issuer of these."""
        tokens[step] = world.token(world.ada, "user-ada", research.AUDIENCE)
        pods[step] = world.token(world.ada, "user-ada", OWN)
        for token in tokens.values():
            world.exchange(token, "user-ada")
        assert [world.accepted(token) for token in pods.values()] == [True] * len(pods), step
        return str(claims(tokens[step])["iss"])

    assert all_are_good("before") == old
    world.have("cloudfront", "s3")
    with recorded(world, request):
        assert (done := world.place.apply()).code == 0, done
    new = world.outputs.issuers["cloudfront"]
    assert kubeadm.issuers(world.cluster, world.outputs) == (new, old, OWN)
    assert all_are_good("applied") == old
    assert "2 of 4" in world.publish()
    assert all_are_good("published") == old
    world.accept(old, OWN, new)
    assert all_are_good("accepted") == old
    world.accept(new, old, OWN)
    assert all_are_good("signed") == new
    assert " of " not in world.publish(), "whoever signs, each issuer has its own documents"

    keys = world.aws("s3").head_object(Bucket=world.identity.bucket, Key="cloudfront/openid/v1/jwks")
    assert keys["CacheControl"] == "max-age=300, s-maxage=60"
    wait = published.seconds_to_wait(world.aws("s3"), world.identity, keys["LastModified"])
    assert wait == 360, "an edge's copy, and then a reader's copy of that"

    world.have("cloudfront")
    world.accept(new, OWN)
    assert [world.accepted(token) for token in pods.values()] == [False] * 4 + [True]
    assert world.place.plan().code == 1, "not by the way"
    unprotect(world.place, "issuer.tf")
    assert (done := world.place.apply()).code == 0, done
    for token in list(tokens.values())[:4]:
        assert world.refused(token, "user-ada") == "InvalidIdentityToken"
    only_its_distribution_reads(world, world.identity.bucket, tokens["signed"])


def only_its_distribution_reads(world: World, bucket: str, token: str) -> None:
    """Nobody else may, as AWS finds by a token of its issuer."""
    s3 = world.aws("s3")
    assert all(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())
    world.exchange(token, "user-ada")
    whole = s3.get_bucket_policy(Bucket=bucket)["Policy"]
    policy = json.loads(whole)
    (allowed,) = (each for each in policy["Statement"] if each["Effect"] == "Allow")
    assert allowed["Principal"] == {"Service": "cloudfront.amazonaws.com"}
    allowed["Condition"]["StringEquals"]["aws:SourceArn"] += "X"
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
    assert world.refused(token, "user-ada") == "InvalidIdentityToken"
    s3.put_bucket_policy(Bucket=bucket, Policy=whole)
    world.exchange(token, "user-ada")


def recorded(world: World, request: pytest.FixtureRequest) -> AbstractContextManager[None]:
    """What only an issuer behind CloudFront asks of IAM; the rest is in recordings of whole environments."""
    update = request.config.getoption("--update-golden")
    services = ("cloudfront", "iam")
    return recording(world.place.server, "web-identity", services=services, update=update)


def unprotect(place: Place, *files: str) -> None:
    """As `--destroy` has it."""
    for file in files:
        text = (place.folder / file).read_text()
        (place.folder / file).write_text(text.replace("prevent_destroy = true", "prevent_destroy = false"))


def test_applied_once_it_stays_as_it_is_and_goes_without_a_trace(
    world: World, request: pytest.FixtureRequest
) -> None:
    """Last: it takes the world away."""
    assert (done := world.place.plan()).code == 0, done
    unprotect(world.place, "issuer.tf", "cloudfront.tf")
    for folder in ("", "cloudfront/"):
        for key in ("openid/v1/jwks", ".well-known/openid-configuration"):
            world.aws("s3").delete_object(Bucket=world.identity.bucket, Key=folder + key)
    for key in ("code/user-ada/x", "code/team-engineers/x", "mlflow/workspaces/user-ada/1/x"):
        world.aws("s3").delete_object(Bucket=world.bucket, Key=key)
    with recorded(world, request):
        assert (done := world.place.destroy()).code == 0, done
    left = localaws.inventory(world.place.server)
    # Sessions and their keys end by themselves.
    assert {*left.pop("global", {})} <= {"iam.access_keys", "sts.assumed_roles"}
    assert left == {}
