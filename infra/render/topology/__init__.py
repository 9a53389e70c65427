"""A diagram of the cluster, with a plan's changes marked, drawn by Graphviz.

``elements`` lists the cluster's parts, ``graph`` converts them to the DOT language, ``page`` converts the
output of ``dot`` to files.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.files import Files
from infra.model import Cluster
from infra.render.topology.elements import GONE, Element


def dot_source(cluster: Cluster, changes: Mapping[str, str] | None = None) -> str:
    """The graph in the DOT language, as input of ``infra.drive.dot``. See ``render``."""
    from infra.render.topology import graph as graphs

    return graphs.graph(cluster, *_known(cluster, changes or {}))


def render(cluster: Cluster, changes: Mapping[str, str] | None, svg: str) -> Files:
    """``topology.html`` and ``topology.svg``, both self-contained.

    ``svg`` is the output of ``dot`` for ``dot_source`` with the same arguments. ``changes`` are those of a
    plan: element → ``add``, ``change``, ``replace`` or ``destroy``. The elements are:

    ==============================  =====================================================
    ``us-west-2``, ``rack-a``       a place: a region with its VPC, or a physical site
    ``us-west-2/gpu``               a node pool in a region
    ``us-west-2/subnets/NAME``      a subnet
    ``us-west-2/machines/NAME``     a master, an SSH node, a VPN server (its short name)
    ``us-west-2/efs/NAME``          a file system; ``…/s3/NAME`` a bucket, ``rack-a/nfs/NAME`` an export
    ``rack-a/nodes/NAME``           a physical node
    ``link/rack-a-us-west-2``       a VPN connection
    ``link/rack-a-rack-b``          a tunnel between two physical sites
    ``peering/A-B``                 a peering, by its name
    ``access/clients``              laptops; ``access/clients/us-west-2`` a VPN server that they connect to
    ``access/groups/researchers``   a group of users, with what it may reach
    ``kubernetes/pods``             a range; also ``kubernetes/services``, ``supernet``, ``links``
    ==============================  =====================================================

    Each element that is drawn is a link to ``#<its name>``, with that name as ``data-id``; the page has a
    table row with that id for every element. One that is destroyed and no longer in the cluster is listed as
    such. Raises ``ValueError`` for an unknown action.
    """
    from infra.render.topology import page

    return page.render(cluster, *_known(cluster, changes or {}), svg)


def _known(cluster: Cluster, changes: Mapping[str, str]) -> tuple[dict[str, Element], dict[str, str]]:
    """The elements, including those that are destroyed, and their changes."""
    from infra.render.topology.elements import elements
    from infra.render.topology.graph import ACTIONS

    for name, action in changes.items():
        if action not in ACTIONS:
            raise ValueError(f"{name}: {action!r} is not one of {', '.join(ACTIONS)}")
    known = elements(cluster)
    # Created resources that are not in the diagram (the bucket of etcd snapshots) are not destroyed ones.
    gone = sorted(name for name, action in changes.items() if name not in known and action == "destroy")
    known |= {name: Element(name, GONE, name) for name in gone}
    return known, {name: changes[name] for name in known if name in changes}
