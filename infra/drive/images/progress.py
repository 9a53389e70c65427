"""What Packer is doing, as a person sees it: a line a phase, and on a terminal the time it takes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

PHASES: Final = (
    (r"Prevalidating|Querying for|Found Image ID", "looking up the source image"),
    (r"Launching a (source|spot) AWS", "launching the build instance"),
    (r"Waiting for instance", "waiting for the build instance"),
    (r"Using ssh communicator|Using SSH communicator|Waiting for SSH", "waiting for SSH"),
    (r"Provisioning with shell script: .*wait-for-cloud-init", "waiting for cloud-init"),
    (r"Uploading .* =>", "uploading cookbooks and roles"),
    (r"Provisioning with shell script: .*unpack", "unpacking"),
    (r"Provisioning with shell script: .*install-client", "installing the client"),
    (r"Provisioning with shell script: .*converge", "running the cookbooks"),
    (r"Provisioning with shell script: .*check", "checking what was built"),
    (r"Provisioning with shell script: .*minimise", "removing what is not needed"),
    (r"Provisioning with shell script: .*seal", "sealing"),
    (r"Stopping the source instance", "stopping the build instance"),
    (r"Creating (unencrypted )?AMI \S+ from instance", "making the AMI"),
    (r"Copying/Encrypting AMI", "copying it to the other regions"),
    (r"Adding tags to AMI", "tagging"),
    (r"Terminating the source AWS instance", "cleaning up"),
)
"""Pattern of a line of Packer's, 1.6 or current → what it is doing from then on."""

_PATTERNS: Final = tuple((re.compile(pattern), phase) for pattern, phase in PHASES)


def phase_of(text: str) -> str | None:
    """The phase that a line begins; None for any other line."""
    return next((phase for pattern, phase in _PATTERNS if pattern.search(text)), None)


class Progress:
    """Shows one bake; without a terminal, a line a phase."""

    def __init__(
        self,
        image: str,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._image = image
        self._given = console
        self._clock = clock
        self._live: Live | None = None
        self._began = clock()
        self._since = self._began
        self.phase = ""
        """What is being done."""

    @cached_property
    def _console(self) -> Console:
        from infra.drive.progress import make_console

        return make_console() if self._given is None else self._given

    def enter(self, phase: str) -> None:
        """Something else begins."""
        if phase == self.phase:
            return
        now = self._clock()
        if self.phase and self._console.is_terminal:
            self._say(f"✓ {self._image}: {self.phase}, {_seconds(now - self._since)}", "green")
        self.phase, self._since = phase, now
        if not self._console.is_terminal:
            self._say(f"{self._image}: {phase} ({_seconds(now - self._began)})", "")

    def beat(self) -> None:
        """Time passes."""
        if not self._console.is_terminal or not self.phase:
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._line, console=self._console, transient=True, auto_refresh=False
            )
            self._live.start()
        self._live.refresh()

    def interrupted(self, times: int) -> None:
        """Somebody asked to stop."""
        self._say(
            "Stopping: Packer was interrupted once, and removes what it made …"
            if times == 1
            else "Still waiting for Packer to remove what it made; it is not killed.",
            "yellow",
        )

    def end(self) -> None:
        """It is over, well or not."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self) -> str:
        return f"  {self._image}: {self.phase}, {_seconds(self._clock() - self._since)}"

    def _say(self, text: str, style: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, style=style), soft_wrap=True)


def _seconds(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
