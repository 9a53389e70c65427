"""An AWS on loopback: moto's server, and the behaviours moto lacks for what we render.

::

    server      the WSGI application: control path, plugin, then moto; one request at a time
    extensions  EXTENSIONS: what we add to moto, a function each, named after the API call
    plugin      where tests change what it does
    control     the client of the control path
    inventory   what the cloud holds beyond what a fresh account has

Started as ``python -m infra.localaws --folder FOLDER``, usually by ``infra.drive.localaws``.
"""
