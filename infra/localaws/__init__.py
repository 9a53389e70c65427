"""An embedded AWS on loopback: moto's server, with behaviour that moto lacks for the rendered resources.

::

    server      the WSGI application: control path, plugin, then moto; one request at a time
    extensions  EXTENSIONS: our additions to moto, one function each, named after the API call
    plugin      the hook with which tests change its behaviour
    control     the client of the control path
    inventory   the resources that a new account does not have

Started as ``python -m infra.localaws --folder FOLDER``, usually by ``infra.drive.localaws``.
"""
