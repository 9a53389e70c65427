"""Whether a machine's NVIDIA cards are well; and no work for it where they are not.

`check` asks `nvidia-smi` and the kernel's log, `judge` makes up its mind without haste, `cluster` cordons the
Kubernetes node and uncordons it, `report` writes down what was found. Python's standard library only (3.10).
"""
