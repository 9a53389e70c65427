"""``python -m infra.localaws --folder FOLDER --environment NAME [--port PORT]``: serve until stopped.

Writes ``FOLDER/server.json`` (mode 0600) once it listens, and deletes nothing when it ends: that file
without a running process shows that the resources were lost.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import threading
import time
from pathlib import Path
from typing import Any

from infra.localaws import plugin
from infra.localaws.server import Application, Identity


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m infra.localaws")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--environment", required=True)
    parser.add_argument("--port", type=int, default=0, help="this one if it is free, else any")
    asked = parser.parse_args()
    plugin.load()
    identity = Identity(secrets.token_hex(16), asked.environment, time.time())
    application = Application(identity)
    server = _listen(application, asked.port)

    def stop(*_: Any) -> None:
        # shutdown() waits for the loop, which a signal handler interrupts, so it is called from another
        # thread.
        threading.Thread(target=server.shutdown, daemon=True).start()

    application.stop = stop
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    _announce(asked.folder, identity, server.server_port)
    threading.Thread(target=application.warm, daemon=True).start()
    server.serve_forever(poll_interval=0.05)
    server.server_close()
    plugin.active.end()
    # Freeing thousands of objects one by one would only delay the exit.
    os._exit(0)


def _listen(application: Application, port: int) -> Any:
    """A server that is already bound, to loopback only."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        protocol_version = "HTTP/1.1"  # keep-alive, which the provider's many calls benefit from

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            if not str(code).startswith("2"):
                super().log_request(code, size)

    try:
        server = make_server("127.0.0.1", port, application, threaded=True, request_handler=Handler)
    except (OSError, SystemExit):  # werkzeug exits if the port is taken
        server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Handler)
    server.daemon_threads = True  # type: ignore[attr-defined]
    return server


def _announce(folder: Path, identity: Identity, port: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / "server.json.new"
    handle = os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(
            {
                "environment": identity.environment,
                "port": port,
                "pid": os.getpid(),
                "nonce": identity.nonce,
                "started": identity.started,
            },
            file,
        )
    fresh.replace(folder / "server.json")


if __name__ == "__main__":
    main()
