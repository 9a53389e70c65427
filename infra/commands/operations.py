"""Commands that inspect without changing anything, and the one that creates the state's bucket."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infra.commands import account_zones, pki_store, session
from infra.commands.environment import Environment, load_project
from infra.commands.terminal import note, say, say_json
from infra.errors import LocalAwsError, UsageError

if TYPE_CHECKING:
    from infra.schema import Spec


def outputs(environment: Environment, *, json: bool) -> int:
    """Print the outputs of the last apply."""
    from infra.drive import lifecycle
    from infra.drive import outputs as kept
    from infra.model import NO_OUTPUTS

    project = load_project(environment, changeable=True, outputs=NO_OUTPUTS)
    if project.cluster.regions and not (environment.build / "terraform").is_dir():
        raise UsageError(
            f"{environment.name} was never planned from here; run: invoke plan {environment.options}"
        )
    job = session.job(project) if project.cluster.regions else None
    values = lifecycle.outputs(job) if job is not None else {}
    if job is not None and values:
        kept.keep(job.folders, values)
    if json:
        say_json(values)
        return 0
    if not values:
        say(f"No outputs: nothing of {environment.name} was applied.")
        return 0
    import yaml

    say(yaml.safe_dump(values, sort_keys=True, allow_unicode=True, width=110).rstrip())
    return 0


def drift(environment: Environment, *, json: bool) -> int:
    """Compare AWS with the state; 2 if they differ."""
    from infra.commands.planning import progress, ready, without_terraform
    from infra.drive import lifecycle, summary

    readied = ready(environment)
    if readied is None:
        if json:
            say_json(summary.drift_json([]))
        else:
            say(f"No drift: {without_terraform(environment)}")
        return 0
    _, job = readied
    found = lifecycle.drift(job, listener=progress())
    if json:
        say_json(summary.drift_json(found.changes, found.undeclared))
    else:
        name, options = environment.name, environment.options
        say(summary.drift_text(found.changes, found.undeclared, environment=name, options=options))
    return found.exit_code


def doctor(environment: Environment, *, json: bool) -> int:
    """Check this computer and the account; 1 if there is a problem."""
    from infra.drive import doctor as doctors

    project = load_project(environment, changeable=True)
    cluster = project.cluster
    lost: list[doctors.Finding] = []
    env: Mapping[str, str] = {}
    try:
        env = session.credentials(environment, cluster)
    except LocalAwsError as problem:
        lost.append(doctors.Finding("embedded AWS", "fail", str(problem)))
    context = doctors.Context(
        options=environment.options,
        build=environment.build,
        env={**os.environ, **env},
        builds=bool(cluster.regions),
        # Without it nothing is queried, as the user's own account would answer.
        uses_aws=bool(cluster.regions) and not lost,
        embedded=session.is_embedded(environment, cluster),
        account=cluster.aws.account,
        profile=cluster.aws.profile,
        regions=tuple(region.region for region in cluster.regions),
        bucket=cluster.state.bucket,
        bucket_region=cluster.state.region,
        vcpus=_vcpus(project.loaded.spec),
    )
    findings = [*lost, *doctors.examine(context)]
    if context.signed_in and not context.embedded:
        findings += account_zones.findings(project, context.env)
    findings += [
        doctors.Finding("certificates", "warn", note) for note in pki_store.notes(project, context.env)
    ]
    if json:
        say_json(doctors.to_json(findings))
    else:
        say(doctors.text(findings))
    return 1 if any(finding.state == "fail" for finding in findings) else 0


def _vcpus(spec: Spec) -> Mapping[tuple[str, str], int]:
    """(AWS region, quota) → the maximum number of vCPUs, counted as in the check of stated quotas."""
    from infra.checks.facts import Facts
    from infra.checks.quotas import may_run

    facts = Facts(spec)
    found: dict[tuple[str, str], int] = {}
    for (site, quota), owners in may_run(facts).items():
        if site in facts.places:
            key = facts.places[site].region, quota
            found[key] = found.get(key, 0) + sum(owners.values())
    return found


def bootstrap(environment: Environment) -> int:
    """Create the bucket of the state."""
    from infra.drive import bootstrap as making

    cluster = load_project(environment, changeable=True).cluster
    if cluster.state.kind != "s3":
        raise UsageError(f"{environment.spec_file}: its state is local: no bucket is needed")
    env: dict[str, Any] = {**os.environ, **session.credentials(environment, cluster)}
    done = making.state_bucket(cluster, env)
    for line in done:
        note(f"{cluster.state.bucket}: {line}")
    say(f"The state of {environment.name} is kept in s3://{cluster.state.bucket}/{cluster.state.key}")
    return 0
