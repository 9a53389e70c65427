"""Chef: a repository of roles, an environment, data bags and nodes, as ``chef-client --local-mode`` reads it.

Attributes go out as JSON, and name secrets without holding any: a machine finds them below
``/etc/causeway/secrets``. The cookbooks are in ``cookbooks/``, hand-written; here are their values.
"""

from __future__ import annotations

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.chef import environment, nodes, people, roles
from infra.render.templating import copied

_TARGET = "chef"


def render(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Files:
    """The repository, by path. File systems that are not made yet have no id."""
    return merge(
        [
            copied(_TARGET),
            # What the user said, for client.rb.
            {"license": f"{cluster.client.license}\n"} if cluster.client.license else {},
            environment.render(cluster, outputs),
            under("roles", roles.render(cluster)),
            under("data_bags", people.render(cluster)),
            under("nodes", nodes.render(cluster)),
            under("images", nodes.bakes(cluster)),
            roles.policyfile(cluster),
        ]
    )
