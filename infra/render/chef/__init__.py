"""Chef: a repository of roles, an environment, data bags and nodes, for ``chef-client --local-mode``.

Attributes are JSON. They name secrets but do not contain any: a machine reads them from
``/etc/causeway/secrets``. The cookbooks are in ``cookbooks/``; this package renders their values.
"""

from __future__ import annotations

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.render.chef import environment, nodes, people, roles
from infra.render.templating import copied

_TARGET = "chef"


def render(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Files:
    """The repository, by path. The ids of file systems are missing before they are created."""
    return merge(
        [
            copied(_TARGET),
            # The user's own settings, for client.rb.
            {"license": f"{cluster.client.license}\n"} if cluster.client.license else {},
            environment.render(cluster, outputs),
            under("roles", roles.render(cluster)),
            under("data_bags", people.render(cluster)),
            under("nodes", nodes.render(cluster)),
            under("images", nodes.bakes(cluster)),
            roles.policyfile(cluster),
        ]
    )
