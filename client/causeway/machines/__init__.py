"""Runs on machines that are reached over ssh, without a cluster.

``host``, ``worker``, ``gang`` and ``leases`` run there, with the machine's own Python (3.9 or newer) and only
its standard library; ``kit`` sends them. The other modules run on the laptop.
"""
