"""The reference of all checks, generated from the registry for ``docs/checks.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from infra.checks import CHECKS, FAMILIES, Check
from infra.errors import Level

_HEAD: Final = """\
# Checks

`invoke validate` checks a spec against every rule on this page. Each finding has the file and line, the path
in the spec, the problem, its fix, and the rule's code. An error stops every command; a warning does not.

This page is generated from the code.

## Living with a finding

A finding that is intended can be waived in the spec, with a reason. It stays visible, but stops
nothing:

```yaml
waivers:
  - code: NET013
    path: sites.lab.cidr        # here and below; left out: everywhere
    reason: nobody connects to the lab from home
```

A waiver that no finding needs any more is a finding itself (WAIV002), so that none outlives its reason.
What is *never* waived leaves nothing to plan from, or a secret in the file.
"""


def markdown() -> str:
    """The whole page as Markdown."""
    return "\n".join([_HEAD, *_families()])


def _families() -> Iterator[str]:
    for letters, title in FAMILIES.items():
        checks = [check for check in CHECKS.values() if check.family == letters]
        if checks:
            yield f"## {letters}: {title}\n"
            yield from _table(checks)
            yield ""


def _table(checks: Iterable[Check]) -> Iterator[str]:
    yield "| Code | Level | Waiver | What is found |"
    yield "| --- | --- | --- | --- |"
    for check in checks:
        level = "**error**" if check.level is Level.ERROR else "warning"
        yield f"| {check.code} | {level} | {'yes' if check.waivable else '*never*'} | {check.doc} |"
