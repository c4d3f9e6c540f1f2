"""What `test_torchft.py` asks of one rank's torchft objects. Prints JSON: where they listen, and what they do with what a stranger gives."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from malice import Payload
from torch.distributed._serialization import _streaming_save
from torchft import ProcessGroupGloo
from torchft.checkpointing.http_transport import HTTPTransport
from torchft.coordination import LighthouseServer

from ckptbench.failures.recovery.torchft.loopback import open_manager, open_store

PATIENCE = timedelta(seconds=30)
STATE = {"tensors": {"weights": torch.arange(5.0)}}


def main(marker: Path) -> None:
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1)
    store = open_store()
    manager = open_manager(
        store,
        timeout=PATIENCE,
        pg=ProcessGroupGloo(timeout=PATIENCE),
        state_dict=lambda: STATE,
        load_state_dict=lambda state: None,
        min_replica_size=1,
        use_async_quorum=False,
        lighthouse_addr=f"http://127.0.0.1:{lighthouse.address().rpartition(':')[2]}",
        replica_id="rank_0",
        init_sync=False,
    )
    manager.start_quorum()
    transport = manager._checkpoint_transport
    transport.send_checkpoint([1], 0, {"user": STATE, "torchft": {"step": 0}}, PATIENCE)
    got = transport.recv_checkpoint(0, transport.metadata(), 0, PATIENCE)
    listens = listening()
    with strangers_state(marker) as address:
        refused = [
            error_of(transport, each) for each in (address, "http://192.0.2.1:80/", "file:///etc/")
        ]
        ran = marker.exists()
        with contextlib.suppress(RuntimeError):  # after the code has run
            HTTPTransport(PATIENCE, 0).recv_checkpoint(0, address, 0, PATIENCE)
    found = {
        "listens": listens,
        "got": got["user"]["tensors"]["weights"].tolist(),
        "refused": refused,
        "ran": ran,
        "live": marker.exists(),
    }
    print(json.dumps(found), flush=True)
    os._exit(0)  # its threads have no end


def error_of(transport: Any, address: str) -> str:
    try:
        transport.recv_checkpoint(0, address, 0, PATIENCE)
    except Exception as error:  # noqa: BLE001 (the test looks at its words)
        return str(error)
    return ""


@contextlib.contextmanager
def strangers_state(marker: Path) -> Any:
    """The address of a state that makes the folder `marker` when it is unpickled."""
    content = io.BytesIO()
    _streaming_save({"user": Payload(marker)}, content)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content.getvalue())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/checkpoint/"
    server.shutdown()


def listening() -> list[str]:
    """The addresses at which this process listens, as /proc has them, without their ports."""
    own = {os.readlink(each) for each in descriptors()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.append(fields[1].partition(":")[0])
    return sorted(found)


def descriptors() -> list[str]:
    return [
        str(each)
        for each in Path("/proc/self/fd").iterdir()
        if each.is_symlink() and os.path.lexists(each)
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
