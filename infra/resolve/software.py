"""What Chef runs on a machine, versions of software from outside of the distribution, and GPU families."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from infra.catalogue import drivers, gpus, instances, roles, software
from infra.catalogue.gpus import Gpu
from infra.catalogue.roles import family_of
from infra.model.machines import NodePool
from infra.model.places import Gpus, PhysicalSite
from infra.model.software import Client, GpuFamily, Pin
from infra.schema import Spec
from infra.schema import machines as written


def resolve_software(spec: Spec) -> tuple[Pin, ...]:
    """Every version that cookbooks install, sorted by name: the spec's, else the catalogue's."""
    return tuple(
        _pin(name, spec.software.get(name)) for name in software.names() if software.way_of(name) != "client"
    )


def resolve_client(spec: Spec) -> Client:
    """The client that runs cookbooks: Chef if the spec selects it, else CINC."""
    stated = spec.software.get("chef")
    pin = _pin("chef" if stated else software.CLIENT, stated or spec.software.get(software.CLIENT))
    assert pin.version is not None
    assert pin.url is not None
    return Client(pin.name, pin.version, pin.url, pin.sha256, stated.license if stated else None)


def _pin(name: str, stated: written.Pin | None) -> Pin:
    known = software.find(name)
    assert known is not None
    version = stated.version if stated is not None else known.version
    url = stated.url if stated is not None else None
    sums = dict(stated.sha256) if stated is not None else {}
    if not sums and version == known.version:
        sums = dict(known.sha256)
    if url is None and version is not None:
        url = known.url_of(version)
    return Pin(name, version, url, dict(sorted(sums.items())))


def resolve_gpu_families(
    spec: Spec, sites: tuple[PhysicalSite, ...], pools: tuple[NodePool, ...]
) -> tuple[GpuFamily, ...]:
    """The architectures of all GPUs in the cluster, and those that an image's roles name."""
    models: defaultdict[str, dict[str, Gpu]] = defaultdict(dict)
    for model in _models(spec, sites, pools):
        gpu = gpus.find(model)
        if gpu is not None:
            models[gpu.architecture][gpu.slug] = gpu
    named = {family for image in spec.images.values() for role in image.roles if (family := family_of(role))}
    return tuple(
        _family(name, tuple(models[name].values()) if name in models else _newest(name))
        for name in sorted(named | models.keys())
    )


def _models(spec: Spec, sites: tuple[PhysicalSite, ...], pools: tuple[NodePool, ...]) -> Iterable[str]:
    yield from (pool.gpus.model for pool in pools if pool.gpus is not None)
    yield from {node.gpus.model for site in sites for node in site.nodes if node.gpus is not None}
    for ssh in spec.access.ssh_nodes.values():
        found = instances.find(ssh.instance_type)
        if found is not None and found.gpus is not None:
            yield found.gpus.model


def _newest(family: str) -> tuple[Gpu, ...]:
    """The GPUs of a family that the newest driver branch supports, for use when the models are not known."""
    models = [gpu for name in gpus.names() if (gpu := gpus.find(name)) and gpu.architecture == family]
    branch = max(found.branch for gpu in models if (found := drivers.newest_for([gpu])))
    return tuple(gpu for gpu in models if gpu.runs(branch))


def _family(name: str, models: tuple[Gpu, ...]) -> GpuFamily:
    best = drivers.newest_for(models)
    assert best is not None, f"a branch runs all {name} GPUs of the catalogue"
    opened = best.branch >= drivers.OPEN_MODULES_SINCE and all(gpu.open_kernel_modules for gpu in models)
    return GpuFamily(name, best.branch, opened)


def run_list(its_roles: Sequence[str], gpus: Gpus | None) -> tuple[str, ...]:
    """A machine's run list, in the order of dependencies. Machines with GPUs also run the driver's role."""
    ordered = sorted(its_roles, key=roles.SERVERS_FIRST.index)
    entries = (f"role[{_role(role, gpus)}]" for role in ordered)
    if gpus is not None and roles.GPU_WORKER not in its_roles:
        return ("role[base]", "recipe[gpu]", *entries)
    return tuple(entries)


def _role(role: str, gpus: Gpus | None) -> str:
    return roles.family_role(gpus.family) if role == roles.GPU_WORKER and gpus is not None else role
