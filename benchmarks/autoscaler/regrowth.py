"""Whether machines are bought again while they boot, in any number of worlds made by chance: ``python -m
benchmarks.autoscaler.regrowth [WORLDS]``. The tests have the first 600 of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Final

FIRST: Final = 600


def grown(first: int, worlds: int) -> Iterator[tuple[int, list[dict[str, int]]]]:
    """Worlds in which anything is asked for after the first of 20 loops, and group → size, loop by loop."""
    from autoscaler import booting

    for seed in range(first, first + worlds):
        loops = booting.bought(*booting.world(seed))
        if any(loops[1:]):
            yield seed, loops


def main() -> None:
    """Print them; exit code 1 if there is one."""
    worlds = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    started, found = time.process_time(), 0
    for seed, loops in grown(FIRST, worlds):
        found += 1
        sys.stdout.write(f"world {seed}: {loops}\n")
    spent = time.process_time() - started
    sys.stdout.write(f"{found} of {worlds:,} worlds grow; {spent:.1f} s of a processor\n")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
