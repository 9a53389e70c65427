"""Facts that do not depend on any spec: regions, instance types, GPUs, drivers, prices, quotas, limits.

Each module is a typed look-up over a JSON table beside it. Tables are read on the first question and never
twice; look-ups build only the rows that are asked for. Nothing here touches the network: ``invoke catalogue
--refresh`` (`infra.drive.catalogue`) asks AWS and rewrites the generated tables, the rest is kept by hand
with its sources in ``sources.md``.
"""
