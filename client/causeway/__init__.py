"""Run code from a laptop on the GPUs of a Causeway cluster, or on this machine."""

__version__ = "0.1.0"
