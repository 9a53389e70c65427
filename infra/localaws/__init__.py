"""An AWS on loopback: moto's server, and the behaviours moto lacks for what we render.

::

    server      the WSGI application: control path, faults, then moto; one request at a time
    extensions  EXTENSIONS: what we add to moto, a function each, named after the API call
    faults      faults a test can order: throttling, failures half-way, latency, no capacity
    control     the client of the control path, for infra.drive and for tests
    machines    a program of the user's that puts machines behind instances
    inventory   what the cloud holds beyond what a fresh account has

Started as ``python -m infra.localaws --folder FOLDER``, usually by ``infra.drive.localaws``.
"""
