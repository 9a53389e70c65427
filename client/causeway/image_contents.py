"""Writes down what the Python of an image has: ``python3 -c <this file> FILE``.

Run by that Python, 3.8 or newer, with nothing but its standard library. FILE gets JSON: ``executable``,
``version``, ``platform``, ``folders`` (where it finds packages), ``packages`` (``name``, ``version``,
``requires`` of each).
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from importlib import metadata
from typing import Any

_VERSION = re.compile(
    r"v?(\d+!)?\d+(\.\d+)*([-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?(-\d+|[-_.]?(post|rev|r)[-_.]?\d*)?"
    r"([-_.]?dev[-_.]?\d*)?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?",
    re.IGNORECASE,
)
"""Versions of PEP 440. Debian's packages may have others, which uv rejects."""

library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
library |= {os.path.join(folder, "lib-dynload") for folder in library}
# Skip the first entry, '', which is the working directory.
folders = [folder for folder in sys.path if folder and os.path.isdir(folder) and folder not in library]
packages: dict[str, dict[str, Any]] = {}
for each in metadata.distributions(path=folders):
    name = each.metadata["Name"]
    if name and each.version and _VERSION.fullmatch(each.version):
        key = re.sub(r"[-_.]+", "-", name).lower()
        packages.setdefault(key, {"name": key, "version": each.version, "requires": each.requires or []})
with open(sys.argv[1], "w", encoding="utf-8") as file:
    found = {
        "executable": sys.executable,
        "version": sys.version,
        "platform": sysconfig.get_platform(),
        "folders": folders,
        "packages": sorted(packages.values(), key=lambda each: each["name"]),
    }
    json.dump(found, file)
