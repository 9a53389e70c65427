"""A Policyfile, for those who prefer policies to roles and environments."""

from __future__ import annotations

from infra.files import Files
from infra.model import Cluster
from infra.render.chef.cookbooks import versions
from infra.render.chef.roles import run_lists
from infra.render.templating import fill


def render(cluster: Cluster) -> Files:
    """``Policyfile.rb``. Names in it are such as need no quoting: the spec and the cookbooks see to that."""
    return {
        "Policyfile.rb": fill(
            "chef/Policyfile.rb.j2",
            environment=cluster.environment,
            cluster=cluster.name,
            cookbooks=list(versions()),
            run_lists=[
                {"role": role, "recipes": ", ".join(f"'{recipe}'" for recipe in recipes)}
                for role, recipes in run_lists(cluster).items()
            ],
        )
    }
