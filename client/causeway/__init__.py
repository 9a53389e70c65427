"""Run code from a laptop on the GPUs of a Causeway cluster, or on this machine.

Programs of a run import it as well, for what follows; of the client they have this file and ``program.py``.
"""

from pkgutil import extend_path

# If the program's own environment contains the client, too, the rest of the package is found there.
__path__ = extend_path(__path__, __name__)

from causeway.program import checkpoint, report, should_stop

__all__ = ["checkpoint", "report", "should_stop"]
__version__ = "1.0.0"
