"""IAM policies of users and CI jobs that work on an environment, written as files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from infra.commands.environment import Environment, load_project
from infra.commands.reference import update
from infra.commands.terminal import columns, note, say, say_json
from infra.errors import UsageError


def iam(environment: Environment, *, every: bool, json: bool) -> int:
    """Write the policies into the build folder. ``every``: also statements that the spec does not need."""
    from infra.render import iam as policies

    cluster = load_project(environment, changeable=True).cluster
    limits, present = policies.scope(cluster), policies.parts(cluster)
    if not present:
        raise UsageError(
            f"{environment.spec_file}: the spec has no AWS site, no state in S3 and no secrets in ssm, so "
            "nobody needs a policy; add a site with kind: aws"
        )
    # A state that is not in S3 has no bucket.
    chosen = policies.PARTS - ({"state"} - present) if every else present
    files = policies.render(limits, chosen)
    folder = environment.build / "iam"
    _write(folder, policies.texts(files))
    sizes = {name: policies.size(statements) for name, statements in files.items()}
    left_out = sorted(policies.PARTS - chosen)
    if cluster.aws.account is None:
        note(
            f"{environment.spec_file} has no aws.account: the policies have * in its place, and hold in any "
            "account that they are created in; set it to the account's 12 digits and run this again"
        )
    applying = [name for name in files if not name.startswith("bake")]
    if len(applying) > policies.POLICIES_PER_ROLE:
        note(
            f"The role that applies needs {len(applying)} policies; IAM allows a role "
            f"{policies.POLICIES_PER_ROLE} until you ask AWS for more (Service Quotas)"
        )
    if json:
        say_json(
            {
                "folder": str(folder),
                "account": cluster.aws.account,
                "partition": limits.partition,
                "regions": list(limits.regions),
                "limit": policies.MANAGED_POLICY,
                "policies": [
                    {
                        "file": name,
                        "characters": sizes[name],
                        "statements": [each["Sid"] for each in statements],
                    }
                    for name, statements in files.items()
                ],
                "left_out": left_out,
            }
        )
        return 0
    rows = [
        (name, str(len(statements)), f"{sizes[name]:,} of {policies.MANAGED_POLICY:,}")
        for name, statements in files.items()
    ]
    say(columns(("policy", "statements", "characters"), rows))
    where = f"account {limits.account} ({limits.partition}), {', '.join(limits.regions) or 'no region'}"
    say(f"{folder}: for {where}, names that begin with {limits.environment}-")
    if left_out:
        say(f"Left out, as the spec has none: {', '.join(left_out)}")
    return 0


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write these files, and delete other policies."""
    for path in folder.glob("*.json"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        update(folder / name, text)
