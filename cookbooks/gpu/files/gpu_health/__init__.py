"""Checks the NVIDIA GPUs of a machine, and keeps work away from it if one is unhealthy.

`check` asks `nvidia-smi` and the kernel's log, `judge` makes up its mind without haste, `cluster` cordons the
Kubernetes node and uncordons it, `report` writes down what was found. Python's standard library only (3.10).
"""
