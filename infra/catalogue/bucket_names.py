"""Which names of buckets S3 refuses (S3 User Guide, "General purpose bucket naming rules").

Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
"""

from __future__ import annotations

import re
from typing import Final

from infra.catalogue.limits import NAMES

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]+[a-z0-9]")
_ADDRESS: Final = re.compile(r"\d+\.\d+\.\d+\.\d+")
_STARTS: Final = ("xn--", "sthree-", "amzn-s3-demo-")
_ENDS: Final = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")


def refused(name: str) -> str:
    """Why S3 takes no bucket of that name, or the empty string."""
    least, most = NAMES["s3-bucket"].least, NAMES["s3-bucket"].characters
    if not least <= len(name) <= most:
        return f"it has {len(name)} characters, and may have {least} to {most}"
    if not _BUCKET.fullmatch(name):
        return "lower-case letters, digits, dots and hyphens, with a letter or digit at both ends"
    if ".." in name or _ADDRESS.fullmatch(name):
        return "two dots in a row" if ".." in name else "it looks like an address"
    kept = [f"begin with {start}" for start in _STARTS if name.startswith(start)]
    kept += [f"end with {end}" for end in _ENDS if name.endswith(end)]
    return f"AWS keeps names that {kept[0]} for itself" if kept else ""
