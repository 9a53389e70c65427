"""Facts that do not depend on any spec: regions, instance types, GPUs, drivers, prices, quotas, limits.

Each module is a typed look-up in a JSON table beside it. Tables are read once, on first use; only the
requested rows are converted. There is no network access: ``invoke catalogue --refresh``
(`infra.drive.catalogue`) queries AWS and rewrites the generated tables; the others are maintained by hand
with their sources in ``sources.md``.
"""
