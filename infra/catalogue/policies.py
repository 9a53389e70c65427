"""How long the inline policies of a role are, in characters without white space, which IAM limits.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html ("Role policies"). What
does not grow with a spec is measured on plans of ``modules/identity`` (``tests/templates``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

MOST: Final = 10_240
"""Characters of all inline policies of a role together."""

_ENTRY: Final = 3
"""An entry's quotes and comma in a list of JSON."""
_BUCKET: Final = len("arn:aws:s3:::") + _ENTRY
_NODES: Final = 1_052
"""Secrets, file systems, and what nodes ask of EC2 and Auto Scaling, where the cluster's name and the
environment's have three letters."""
_CONDITIONS: Final = 4
"""Lists of all regions among them."""
_BUCKETS: Final = 458
_KEYS: Final = 190
_SERVICE: Final = len("s3..amazonaws.com") + _ENTRY


def of_nodes(regions: Iterable[str], buckets: Iterable[tuple[str, bool]], keys: Iterable[str]) -> int:
    """The characters of the policies of a cluster's nodes, give or take the few of its own name.

    ``buckets``: name, and whether nodes may only read it. ``keys``: ARNs of the buckets' keys.
    """
    regions, keys = tuple(regions), tuple(keys)
    size = _NODES + _CONDITIONS * sum(len(region) + _ENTRY for region in regions)
    named = [(len(name) + _BUCKET, read_only) for name, read_only in buckets]
    # The bucket and, with "/*", its objects: to read, and once more to write.
    size += sum((2 if read_only else 4) * (length + 1) for length, read_only in named)
    size += _BUCKETS if named else 0
    if keys:
        size += _KEYS + sum(len(key) + _ENTRY for key in keys)
        size += sum(len(region) + _SERVICE for region in regions)
    return size
