"""A cluster that runs JobSets: a real API server, Kubernetes' job controller, JobSet's controller and its
webhooks, and the embedded AWS, which takes the API server's tokens. Pods run on a stand-in (``pods.py``);
where a test asks for it, the real scheduler puts them on a node with a real kubelet (``real_node.py``)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import embedded_aws
from client.pods import StandIn
from client.process import Causeway, Finished
from client.real_node import HOST, RealNode
from golden_clusters import golden
from kube.api import Api
from kube.plane import NAME, Plane, issuer_flags, planes
from kube.queues import jobset, kueue
from msgspec.structs import replace
from ports import reserved

from infra.drive import localaws
from infra.drive.kubernetes import issuer as issuers
from infra.drive.localaws import Server
from infra.model import NO_OUTPUTS
from infra.model import Cluster as Spec
from infra.model.outputs import Outputs
from infra.render.kubernetes import objects, research, volumes
from infra.render.kubernetes import queues as queueing

_PATIENCE = 900
"""Seconds for a run from its submission to its end, on emulated processors of a busy machine."""
_CONTROLLERS = (
    "job-controller", "garbage-collector-controller", "pod-garbage-collector-controller",
    "serviceaccount-controller", "endpointslice-controller", "persistentvolume-binder-controller",
)  # fmt: skip


@dataclass
class World:
    """What a person has: a kubeconfig, and a way to the store."""

    spec: Spec
    plane: Plane
    aws: Server
    pods: StandIn
    kubeconfigs: Mapping[str, Path]
    node: RealNode | None = None

    @property
    def admin(self) -> Api:
        return self.plane.admin

    def environment(self, login: str) -> dict[str, str]:
        """Of a person's shell."""
        return {
            "KUBECONFIG": str(self.kubeconfigs[login]),
            "AWS_ENDPOINT_URL": self.aws.address,
            "CAUSEWAY_YES": "1",
        }

    def tools(self) -> dict[str, str]:
        """What the image with the client has in its environment."""
        return _images(self.aws)["code"]

    def s3(self) -> Any:
        return embedded_aws.client(self.aws, "s3")

    @property
    def bucket(self) -> str:
        assert self.spec.storage.work is not None
        return self.spec.storage.work.bucket

    def pod(self, namespace: str, name: str) -> Any:
        pods = self.admin.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return next(pod for pod in pods if pod["metadata"]["name"].startswith(name))


def person(
    world: World, login: str, folder: Path, environment: Mapping[str, str], command: list[str], **more: str
) -> Causeway:
    """Somebody's shell in a folder, with ``more`` in its environment."""

    def run(*arguments: str, **other: str) -> Finished:
        env = {**environment, **world.environment(login), **more, **other}
        done = subprocess.run(
            [*command, *arguments], cwd=folder, env=env,
            capture_output=True, text=True, check=False, timeout=_PATIENCE,
        )  # fmt: skip
        return Finished(done.returncode, done.stdout, done.stderr)

    return run


@contextmanager
def worlds(
    folder: Path, *, queues: bool = False, spec: Spec | None = None, kubelet: bool = False
) -> Iterator[World]:
    """``queues``: with Kueue, which suspends what comes until there is quota. ``spec``: another one than
    the golden ``research``. ``kubelet``: with a real one, and the stand-in runs only the pods that name it as
    their node."""
    spec = spec or golden("research")
    # No autoscaler answers Kueue's questions here.
    spec = replace(spec, autoscaler=replace(spec.autoscaler, image=None))
    # As kubeadm has it, but by name first: that is what kubelets' certificates are for.
    flags = [*issuer_flags(spec), "--kubelet-preferred-address-types=Hostname,InternalIP"]
    with planes(folder, flags=flags) as plane, ExitStack() as stack:
        node = stack.enter_context(_booting()) if kubelet else None
        aws = localaws.start(folder / "aws", "research")
        stack.callback(localaws.stop, aws.folder)
        roles = _account(aws, spec)
        stack.enter_context(plane.controllers(*_CONTROLLERS))
        stack.enter_context(jobset(plane))
        if queues:
            stack.enter_context(kueue(plane, spec))
        outputs = Outputs(roles=roles)
        for part in ("namespaces", "scheduling", "access", "identities", "research"):
            plane.admin.apply_all(objects(part, spec, outputs))
        plane.admin.apply_all({"": volumes.objects(spec, outputs)["volumes.yaml"]})
        assert spec.web_identity is not None
        issuers.publish(plane.driven, embedded_aws.client(aws, "s3"), spec.web_identity, NO_OUTPUTS)
        kubeconfigs = {login: plane.kubeconfig_of(login) for login in ("ada", "alan")}
        (folder / "pods").mkdir()
        images = _images(aws)
        images["conductor"] |= {
            "KUBERNETES_SERVICE_HOST": NAME,
            "KUBERNETES_SERVICE_PORT": str(plane.port),
            "CAUSEWAY_SWEEP_EVERY": "2",
        }
        if queues:
            images["board"] = {}  # It ends at once: its port is this machine's, where another board may be.
        stand_in = StandIn(plane.admin, folder / "pods", images, schedules=not kubelet)
        pods = stack.enter_context(stand_in.running())
        world = World(spec, plane, aws, pods, kubeconfigs)
        if node is not None:
            stack.enter_context(plane.scheduler())
            world.node = node()
            world.node.start(plane, _real_images(spec, aws), labels=_labels(spec))
        yield world


@contextmanager
def _booting() -> Iterator[Callable[[], RealNode]]:
    """The node's VM boots while the cluster comes up; what is given waits for it."""
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        (port,) = stack.enter_context(reserved(1))
        booted = pool.submit(stack.enter_context, RealNode.booted(port))
        try:
            yield booted.result
        finally:
            wait([booted])


def _real_images(spec: Spec, aws: Server) -> dict[str, dict[str, str]]:
    """Name → the environment that the image has: in both, what is on this machine is."""
    assert spec.research is not None
    of = _images(aws)
    # The embedded AWS answers to this machine's own names alone, so it is its own proxy.
    proxy = {"HTTP_PROXY": aws.address.replace("127.0.0.1", HOST), "NO_PROXY": ""}
    environments = {image.image: of["main"] for image in spec.research.images}
    return {str(spec.research.tools): {**of["code"], **proxy}, **environments}


def _labels(spec: Spec) -> Mapping[str, str]:
    """A node's whom Kueue lets runs without GPUs on."""
    labels: Mapping[str, str] = next(
        flavor["spec"]["nodeLabels"]
        for flavor in queueing.objects(spec)["flavors.yaml"]
        if flavor["kind"] == "ResourceFlavor" and "topologyName" not in flavor["spec"]
    )
    return labels


def _images(aws: Server) -> dict[str, dict[str, str]]:
    """What would be in the images: for the code's the client, for the job's Debian's Python with torch."""
    client = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": str(Path(__file__).parents[2] / "client"),
        "AWS_ENDPOINT_URL": aws.address,
    }
    torch = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PET_REDIRECTS": "9:1", "PET_TEE": "9:1"}
    job = dict.fromkeys(("image", "packages", "main"), torch)
    return {**dict.fromkeys(("code", "keep", "board"), client), "conductor": {**client}, **job}


def _account(aws: Server, spec: Spec) -> Mapping[str, str]:
    """What Terraform makes of the module web_identity, in short; ``tests/localaws/test_web_identity.py`` has
    the module itself. Namespace → its role's ARN."""
    assert spec.web_identity is not None
    assert spec.storage.work is not None
    s3, iam, identity = embedded_aws.client(aws, "s3"), embedded_aws.client(aws, "iam"), spec.web_identity
    url = str(identity.issuers[0].url)
    place = {"CreateBucketConfiguration": {"LocationConstraint": "us-west-2"}}
    for bucket in (identity.bucket, spec.storage.work.bucket):
        s3.create_bucket(Bucket=bucket, **place)
    versions = {"Status": "Enabled"}
    s3.put_bucket_versioning(Bucket=spec.storage.work.bucket, VersioningConfiguration=versions)
    public = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:GetObject",
        "Resource": f"arn:aws:s3:::{identity.bucket}/*",
    }
    s3.put_bucket_policy(
        Bucket=identity.bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [public]})
    )
    provider = iam.create_open_id_connect_provider(
        Url=url, ClientIDList=[research.AUDIENCE], ThumbprintList=[]
    )
    host = url.removeprefix("https://")
    roles = {}
    for namespace, name in spec.web_identity.roles.items():
        who = {f"{host}:sub": f"system:serviceaccount:{namespace}:work", f"{host}:aud": research.AUDIENCE}
        trust = {
            "Effect": "Allow",
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Principal": {"Federated": provider["OpenIDConnectProviderArn"]},
            "Condition": {"StringEquals": who},
        }
        document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        roles[namespace] = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]["Arn"]
    return roles
