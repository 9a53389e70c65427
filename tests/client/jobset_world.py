"""A cluster that runs JobSets: a real API server, Kubernetes' job controller, JobSet's controller and its
webhooks, and the embedded AWS, which takes the API server's tokens. Pods run on a stand-in (``pods.py``);
where a test asks for it, the real scheduler puts them on a node with a real kubelet (``real_node.py``)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import embedded_aws
import yaml
from autoscaler.kube.clusters import Cluster
from autoscaler.kube.queueing import WEBHOOKS, applied, apply, here, kueue
from client.pods import StandIn
from client.process import Causeway, Finished
from client.real_node import HOST, RealNode
from drive.kubernetes.apiserver import NAME, running
from golden_clusters import golden
from kube_tools import need, templated
from msgspec.structs import replace
from ports import reserved
from render.kubernetes.policy_world import Api, scheduler
from render.kubernetes.policy_world import World as PolicyWorld
from stores import cluster_keys
from waiting import until

from infra.drive import localaws
from infra.drive.kubernetes import access, certificates, kubeconfig
from infra.drive.kubernetes import issuer as issuers
from infra.drive.kubernetes.access import Endpoint
from infra.drive.kubernetes.api import Api as DrivenApi
from infra.drive.kubernetes.secrets import Keys
from infra.drive.localaws import Server
from infra.model import NO_OUTPUTS
from infra.model import Cluster as Spec
from infra.model.outputs import Outputs
from infra.render.kubernetes import access as rights
from infra.render.kubernetes import identities, kubeadm, namespaces, research, scheduling, volumes
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
    admin: Api
    aws: Server
    pods: StandIn
    folder: Path
    kubeconfigs: Mapping[str, Path]
    way: Path
    """The administrator's kubeconfig."""
    node: RealNode | None = None

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
    keys = cluster_keys(folder)
    flags: dict[str, list[str]] = {}
    for flag in kubeadm.cluster_configuration(spec)["apiServer"]["extraArgs"]:
        flags.setdefault(flag["name"], []).append(flag["value"])
    more = [f"--{name}={flags[name][0]}" for name in ("service-account-jwks-uri", "api-audiences")]
    more += _kubelets_client(keys, folder)
    with (
        running(folder, keys, more=more, issuers=flags["service-account-issuer"]) as server,
        access.opened(folder / "build", Endpoint(NAME, server.address), keys.ca) as way,
        ExitStack() as stack,
    ):
        node = stack.enter_context(_booting()) if kubelet else None
        admin = Api(server, keys, folder, "admin", "system:masters")
        cluster = Cluster.of(way.kubeconfig)
        aws = localaws.start(folder / "aws", "research")
        stack.callback(localaws.stop, aws.folder)
        roles = _account(aws, spec)
        _controllers(stack, folder, way.kubeconfig)
        _jobset(stack, cluster, folder, way.kubeconfig)
        if queues:
            stack.enter_context(kueue(cluster, spec, folder))
        _apply_all(cluster, spec, roles)
        assert spec.web_identity is not None
        issuers.publish(DrivenApi(way), embedded_aws.client(aws, "s3"), spec.web_identity, NO_OUTPUTS)
        kubeconfigs, where = {}, Endpoint(NAME, server.address)
        for login in ("ada", "alan"):
            pair = certificates.client(keys.ca, login, (), datetime.now(UTC), timedelta(hours=6))
            config = kubeconfig.with_certificate(where, keys.ca.certificate, "research", login, pair)
            kubeconfigs[login] = folder / f"{login}.yaml"
            kubeconfigs[login].write_text(yaml.safe_dump(config))
        (folder / "pods").mkdir()
        images = _images(aws)
        images["conductor"] |= {
            "KUBERNETES_SERVICE_HOST": NAME,
            "KUBERNETES_SERVICE_PORT": server.address.rpartition(":")[2],
            "CAUSEWAY_SWEEP_EVERY": "2",
        }
        if queues:
            images["board"] = {}  # It ends at once: its port is this machine's, where another board may be.
        stand_in = StandIn(admin, folder / "pods", images, schedules=not kubelet)
        pods = stack.enter_context(stand_in.running())
        world = World(spec, admin, aws, pods, folder, kubeconfigs, way.kubeconfig)
        if node is not None:
            stack.enter_context(scheduler(PolicyWorld(server, keys, folder), folder))
            world.node = node()
            port = server.address.rpartition(":")[2]
            world.node.start(admin, keys.ca, port, _real_images(spec, aws), labels=_labels(spec))
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


def _kubelets_client(keys: Keys, folder: Path) -> list[str]:
    """As kubeadm has it: by what the API server comes to kubelets. It asks them by name first."""
    now, life = datetime.now(UTC), timedelta(hours=12)
    pair = certificates.client(keys.ca, "kube-apiserver-kubelet-client", ["system:masters"], now, life)
    (folder / "kubelet-client.crt").write_text(pair.certificate)
    (folder / "kubelet-client.key").write_text(pair.key)
    return [
        "--kubelet-preferred-address-types=Hostname,InternalIP",
        f"--kubelet-client-certificate={folder}/kubelet-client.crt",
        f"--kubelet-client-key={folder}/kubelet-client.key",
    ]


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
        flavour["spec"]["nodeLabels"]
        for flavour in queueing.objects(spec)["flavours.yaml"]
        if flavour["kind"] == "ResourceFlavor" and "topologyName" not in flavour["spec"]
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


def _controllers(stack: ExitStack, folder: Path, admin: Path) -> None:
    log = stack.enter_context((folder / "kube-controller-manager.log").open("ab"))
    process = subprocess.Popen(
        [
            need("kube-controller-manager"), "--leader-elect=false", "--secure-port=0",
            f"--kubeconfig={admin}", f"--controllers={','.join(_CONTROLLERS)}",
        ],
        stdout=log, stderr=log, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(process.kill)


def _jobset(stack: ExitStack, cluster: Cluster, folder: Path, admin: Path) -> None:
    """Its kind, its controller, and its webhooks at a port of this machine."""
    program = need("jobset")
    now, life = datetime.now(UTC), timedelta(hours=12)
    authority = certificates.authority("jobset", now)
    pair = certificates.server(authority, "jobset", ["localhost"], now, life)
    serving = folder / "jobset/serving-certs"
    serving.mkdir(parents=True)
    (serving / "tls.crt").write_text(pair.certificate)
    (serving / "tls.key").write_text(pair.key)
    webhooks, health = stack.enter_context(reserved(2))
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"port": webhooks, "host": "127.0.0.1"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
    }
    (folder / "jobset.yaml").write_text(yaml.safe_dump(config))
    chart = templated("jobset", None, "--namespace=jobset-system")
    for each in chart:
        if each["kind"] == "CustomResourceDefinition":
            each["spec"].pop("conversion", None)
            apply(cluster, each)
    # It looks for its certificate in this place alone.
    place = "/tmp/k8s-webhook-server"
    alone = ["unshare", "--mount", "--", "sh", "-c"]
    alone += [
        f'mkdir -p {place} && mount --bind "$0" {place} && until "$@"; do sleep 0.5; done',
        str(serving.parent),
    ]
    log = stack.enter_context((folder / "jobset.log").open("ab"))
    process = subprocess.Popen(
        [*alone, program, "--config", str(folder / "jobset.yaml"), "--kubeconfig", str(admin)],
        stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=dict(os.environ), start_new_session=True,
    )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(os.killpg, process.pid, signal.SIGKILL)
    for each in chart:
        if each["kind"] in WEBHOOKS:
            apply(cluster, here(each, webhooks, authority.certificate))


def _apply_all(cluster: Cluster, spec: Spec, roles: Mapping[str, str]) -> None:
    outputs = Outputs(roles=roles)
    for module in (namespaces, scheduling, rights, identities, research):
        for some in module.objects(spec, outputs).values():
            for one in some:
                until(partial(applied, cluster, one))
    for one in volumes.objects(spec, outputs)["volumes.yaml"]:
        until(partial(applied, cluster, one))
