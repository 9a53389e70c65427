"""A picture of the cluster: one page to explore, one SVG to print or embed.

``places`` and ``contents`` say what there is to tell, ``layout`` decides where it stands, in ``cards`` or in
``boxes`` and with ``wires`` between, and ``page`` fills the templates.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.files import Files
from infra.model import Cluster


def render(cluster: Cluster, changes: Mapping[str, str] | None = None) -> Files:
    """``topology.html``, which needs no network, and ``topology.svg``, which needs nothing else.

    ``changes`` is what a plan would do: element → ``add``, ``change``, ``replace`` or ``destroy``. Elements
    are named as by ``infra.render.topology.items``:

    ==============================  =====================================================
    ``us-west-2``, ``rack-a``       a place: a region with its VPC, or a physical site
    ``us-west-2/gpu``               a node pool in a region
    ``us-west-2/subnets/NAME``      a subnet
    ``us-west-2/machines/NAME``     a master, an SSH node, a VPN end point (its short name)
    ``us-west-2/efs/NAME``          a file system; ``…/s3/NAME`` a bucket, ``rack-a/nfs/NAME`` an export
    ``rack-a/nodes/NAME``           a physical node
    ``link/rack-a-us-west-2``       a VPN connection
    ``link/rack-a-rack-b``          a tunnel between two physical sites
    ``peering/A-B``                 a peering, by its name
    ``access/clients``              laptops; ``access/clients/us-west-2`` where they come in
    ``access/groups/researchers``   a group of people, with what it may reach
    ``kubernetes/pods``             a range; also ``kubernetes/services``, ``supernet``, ``links``
    ==============================  =====================================================

    One that is destroyed and is no longer in the cluster is listed under the picture. Raises ``ValueError``
    for an action of another name.
    """
    from infra.render.topology.page import draw

    return draw(cluster, changes or {})
