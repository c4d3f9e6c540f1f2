"""As much of Google Cloud Storage, over a folder on loopback, as tensorstore asks for: whole objects, ranges of bytes, generations."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

HOST, BUCKET = "127.0.0.1", "checkpoints"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    root: Path
    lock: threading.Lock
    generations: dict[str, int]

    def do_GET(self) -> None:
        file, name, _ = self._object()
        with self.lock:
            if not name:
                names = (str(one.relative_to(self.root)) for one in self.root.rglob("*") if one.is_file())  # fmt: skip
                return self._tell(200, {"items": [self._item(one) for one in sorted(names)]})
            if not file.is_file():
                return self._tell(404, {})
            content = file.read_bytes()
        first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        if not last:
            return self._answer(200, content, name)
        begin = int(first) if first else len(content) - int(last)
        end = min(int(last) + 1, len(content)) if first else len(content)
        place = f"bytes {begin}-{end - 1}/{len(content)}"
        return self._answer(206, content[begin:end], name, place)

    def do_POST(self) -> None:
        file, name, query = self._object()
        content = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            now = self.generations[name] if file.is_file() else 0
            if int(query.get("ifGenerationMatch", now)) != now:
                return self._tell(412, {})
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            self.generations[name] = sum(self.generations.values()) + 1
            return self._tell(200, self._item(name))

    def _object(self) -> tuple[Path, str, dict[str, str]]:
        """Its file, its name (none of a listing), and what is asked of it."""
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        name = query.get("name") or unquote(parts.path.partition("/o/")[2])
        return self.root / name, name, query

    def _item(self, name: str) -> dict[str, str]:
        size, generation = (self.root / name).stat().st_size, self.generations.get(name, 1)
        return {"name": name, "size": str(size), "generation": str(generation)}

    def _tell(self, code: int, content: dict[str, object] | dict[str, str]) -> None:
        self._answer(code, json.dumps(content).encode())

    def _answer(self, code: int, content: bytes, name: str = "", place: str = "") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        if name:
            self.send_header("x-goog-generation", str(self.generations.get(name, 1)))
        if place:
            self.send_header("Content-Range", place)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def google_store(root: Path) -> Iterator[dict[str, str]]:
    """Objects of the bucket are files below `root`/BUCKET. Gives the variables by which tensorstore finds it."""
    (root / BUCKET).mkdir(parents=True)
    handler = type("Handler", (_Handler,), {"root": root / BUCKET, "lock": threading.Lock(), "generations": {}})  # fmt: skip
    server = ThreadingHTTPServer((HOST, 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield {
            "TENSORSTORE_GCS_HTTP_URL": f"http://{HOST}:{server.server_port}", "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token", "NO_PROXY": HOST, "no_proxy": HOST,
        }  # fmt: skip
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
