"""Shows what a spec defines, without rendering or changing anything."""

from __future__ import annotations

from infra.commands.environment import Environment, placed, read_lock
from infra.commands.terminal import columns, note, problems_json, say, say_json, tell
from infra.errors import SpecError, UsageError
from infra.load import load


def validate(environment: Environment, *, json: bool) -> int:
    """Print all problems of a spec and its lock file; 1 if it cannot be used."""
    from infra.commands.environment import load_project

    try:
        problems, sound = load_project(environment).loaded.problems, True
    except SpecError as error:
        problems, sound = tuple(error.problems), False
    if json:
        say_json(problems_json(problems))
        return 0 if sound else 1
    tell(problems)
    errors = sum(problem.fatal for problem in problems)
    others = len(problems) - errors
    verdict = "is sound" if sound else f"has {errors} error{'s' * (errors != 1)}"
    rest = f", {others} other finding{'s' * (others != 1)}" if others else ""
    say(f"{environment.spec_file} {verdict}{rest}")
    return 0 if sound else 1


def spec(environment: Environment, *, resolved: bool, json: bool) -> int:
    """Print the spec with everything that it extends merged; resolved: each value with its origin."""
    loaded = load(environment.spec_file)
    if not resolved:
        if json:
            say_json(loaded.spec.model_dump(mode="json", exclude_unset=True))
        else:
            import yaml

            plain = loaded.root.plain()
            say(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110).rstrip())
        return 0
    from infra.commands.provenance import origins
    from infra.errors import dotted

    found = origins(loaded)
    if json:
        say_json([one.to_json() for one in found])
        return 0
    lines = [(f"{dotted(one.path)}: {one.value}", str(one.position or "default")) for one in found]
    width = min(100, max(len(text) for text, _ in lines))
    for text, origin in lines:
        say(f"{text:<{width}}  # {origin}")
    return 0


def addresses(environment: Environment, *, json: bool) -> int:
    """Print the address plan as a tree with sizes and use."""
    from infra.resolve.addresses import plan_addresses
    from infra.resolve.lockfile import parse
    from infra.resolve.usage import Node, tree

    lock = parse(read_lock(environment), str(environment.lock_file))
    loaded = load(environment.spec_file)
    try:
        plan = plan_addresses(loaded.spec, lock)
    except SpecError as problem:
        raise placed(problem, loaded) from None
    if json:
        say_json({owner: str(block) for owner, block in plan.blocks.items()})
        return 0

    def show(node: Node, depth: int) -> None:
        name = "  " * depth + (node.owner if depth < 2 else node.owner.rsplit("/", 1)[-1])
        use = f"{node.used:>12,} of {node.size:,} used" if node.children else f"{node.size:>12,} addresses"
        say(f"{name:<44} {node.block!s:<18} {node.source:<10} {use}")
        for child in node.children:
            show(child, depth + 1)

    for root in tree(plan):
        show(root, 0)
    return 0


def catalogue(
    environment: Environment,
    *,
    refresh: bool,
    region: tuple[str, ...],
    client: str,
    list_gpus: bool,
    json: bool,
) -> int:
    """Print the age and contents of the catalogue; refresh: query AWS in these regions, or in the spec's.
    ``client``: pin this release of CINC, or the newest of a series. ``list_gpus``: the models of GPUs."""
    from infra.catalogue import gpus, instances, prices, regions

    if client:
        from infra.drive import client_pin

        client_pin.refresh(client, said=note)
    if refresh:
        _refresh(environment, region or _regions(environment))
    if list_gpus:
        return _gpus(json=json)
    told = {
        "instance_types": len(instances.names()),
        "regions": len(regions.names()),
        "gpu_models": len(gpus.names()),
        "prices_dated": prices.DATED,
    }
    if json:
        say_json(told)
    else:
        say(
            f"{told['instance_types']:,} instance types, {told['regions']} regions, {told['gpu_models']} GPU "
            f"models; prices of {told['prices_dated']}"
        )
    return 0


def _gpus(*, json: bool) -> int:
    from infra.catalogue import gpus

    every = [gpu for name in gpus.names() if (gpu := gpus.find(name)) is not None]
    found = [(gpu, [*gpus.written(gpu)]) for gpu in every]
    if json:
        say_json(
            [
                {
                    "model": words[0],
                    "name": gpu.name,
                    "also": words[1:],
                    "class": gpu.gpu_class,
                    "memory_mib": gpu.memory_mib,
                    "compute_capability": gpu.compute_capability,
                    "drivers": [gpu.first_driver, gpu.last_driver],
                }
                for gpu, words in found
            ]
        )
        return 0
    rows = [
        (
            words[0],
            gpu.gpu_class,
            f"{gpu.memory_mib / 1024:.0f} GiB",
            gpu.compute_capability,
            f"{gpu.first_driver} to {gpu.last_driver or 'today'}",
            ", ".join(words[1:]),
        )
        for gpu, words in sorted(found, key=lambda row: (float(row[0].compute_capability), row[0].slug))
    ]
    say(columns(("model", "class", "memory", "compute", "drivers", "also"), rows))
    return 0


def _regions(environment: Environment) -> tuple[str, ...]:
    """The AWS regions that a spec names, even if it has errors: an unknown type is a reason to refresh."""
    from infra.load.inherit import read

    written = read(environment.spec_file)[0].plain()
    sites = written.get("sites", {}) if isinstance(written, dict) else {}
    found = {
        str(site.get("region") or name)
        for name, site in sites.items()
        if isinstance(site, dict) and site.get("kind") == "aws"
    }
    if not found:
        raise UsageError(f"{environment.spec_file} names no AWS region; name one with --region")
    return tuple(sorted(found))


def _refresh(environment: Environment, regions: tuple[str, ...]) -> None:
    import boto3

    from infra.drive.catalogue import refresh
    from infra.load.inherit import read

    aws = read(environment.spec_file)[0].child("aws")
    profile = aws.child("profile") if aws is not None else None
    name = profile.content if profile is not None and isinstance(profile.content, str) else None
    refresh(regions, boto3.Session(profile_name=name), said=note)
