"""An object store on loopback: moto's server in this process, and before it what can go wrong in a store.

with object_store() as store:
    store.fail("refuse", "part", first=2)
    subprocess.run([...], env={**os.environ, **store.environment})
    assert store.objects() == {} and store.unfinished() == ["run/step-5"]
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import boto3
from botocore.config import Config
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

HOST, BUCKET, REGION = "127.0.0.1", "checkpoints", "us-east-1"
FAULTS = ("refuse", "cut", "lose", "slow")
"""503 SlowDown; the connection ends after half of the body; it is answered like a success, and nothing is kept; it waits."""
KINDS = ("put", "start", "part", "complete", "get", "head", "list", "delete", "copy", "abort")
ALWAYS = 1_000_000
"""Times."""
REFUSAL = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"

Environ = dict[str, Any]
Answer = Callable[..., Any]


@dataclass(frozen=True)
class Request:
    kind: str
    """One of KINDS: `part`, `start`, `complete` and `abort` are of an upload in parts."""
    key: str


@dataclass
class _Fault:
    what: str
    kind: str
    key: str
    first: int
    times: int
    wait_s: float
    seen: int = 0

    def hits(self, request: Request) -> bool:
        if request.kind != self.kind or self.key not in request.key:
            return False
        self.seen += 1
        return self.first <= self.seen < self.first + self.times


@dataclass
class ObjectStore:
    port: int
    bucket: str = BUCKET
    requests: list[Request] = field(default_factory=list)
    """In their order, those that have failed too."""
    _faults: list[_Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}"

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """By which s3fs, boto3 and the AWS SDKs find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_MAX_ATTEMPTS": "1", "NO_PROXY": HOST, "no_proxy": HOST,
        }  # fmt: skip

    def fail(
        self, what: str, kind: str, *, key: str = "", first: int = 1, times: int = ALWAYS, wait_s: float = 0.5
    ) -> None:  # fmt: skip
        """From the `first` request of this kind on whose key has `key`, so many times. Clients retry; s3fs waits forever at the end of a process whose upload failed."""
        assert what in FAULTS, what
        assert kind in KINDS, kind
        self._faults.append(_Fault(what, kind, key, first, times, wait_s))

    def mend(self) -> None:
        """No fault from now on."""
        self._faults.clear()

    @property
    def client(self) -> Any:
        """boto3's, which sees the store as any other client does, and does not retry."""
        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name=REGION, aws_access_key_id="key", aws_secret_access_key="secret",
            config=Config(retries={"total_max_attempts": 1}, proxies={}),
        )  # fmt: skip

    def objects(self) -> dict[str, int]:
        """Bytes by key."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return {one["Key"]: one["Size"] for page in pages for one in page.get("Contents", [])}

    def unfinished(self) -> list[str]:
        """Keys of uploads in parts that were neither completed nor aborted."""
        found = self.client.list_multipart_uploads(Bucket=self.bucket)
        return [one["Key"] for one in found.get("Uploads", [])]

    def _fault(self, request: Request) -> _Fault | None:
        with self._lock:
            self.requests.append(request)
            return next((one for one in self._faults if one.hits(request)), None)


def _request(environ: Environ) -> Request:
    asked = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    _, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
    method = environ["REQUEST_METHOD"]
    in_parts = "uploadId" in asked
    kinds = {
        "PUT": "part" if in_parts else "copy" if "HTTP_X_AMZ_COPY_SOURCE" in environ else "put",
        "POST": "complete" if in_parts else "start" if "uploads" in asked else "delete",
        "GET": "get" if key else "list",
        "HEAD": "head",
        "DELETE": "abort" if in_parts else "delete",
    }
    return Request(kinds.get(method, method), key)


def _failing(store: ObjectStore, whole: Callable[[Environ, Answer], Iterable[bytes]]) -> Any:
    """Around moto's application."""

    def application(environ: Environ, answer: Answer) -> Iterable[bytes]:
        fault = store._fault(_request(environ))
        size = int(environ.get("CONTENT_LENGTH") or 0)
        if fault is None:
            return whole(environ, answer)
        if fault.what == "slow":
            time.sleep(fault.wait_s)
            return whole(environ, answer)
        body = environ["wsgi.input"].read(size // 2 if fault.what == "cut" else size)
        if fault.what == "cut":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        if fault.what == "lose":
            etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
            answer("200 OK", [("Content-Length", "0"), ("ETag", f'"{etag}"')])
            return [b""]
        answer(
            "503 Slow Down",
            [("Content-Type", "application/xml"), ("Content-Length", str(len(REFUSAL)))],
        )
        return [REFUSAL]

    return application


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """With one empty bucket. What is in it goes at the end."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = ObjectStore(0)
    whole = DomainDispatcherApplication(create_backend_app)
    server: BaseWSGIServer = make_server(HOST, 0, _failing(store, whole), threaded=True)
    store.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        store.client.create_bucket(Bucket=store.bucket)
        store.requests.clear()
        yield store
    finally:
        store.mend()
        _empty(store)
        server.shutdown()
        thread.join()
        server.server_close()


def _empty(store: ObjectStore) -> None:
    for upload in store.client.list_multipart_uploads(Bucket=store.bucket).get("Uploads", []):
        store.client.abort_multipart_upload(
            Bucket=store.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
        )
    for key in store.objects():
        store.client.delete_object(Bucket=store.bucket, Key=key)
    store.client.delete_bucket(Bucket=store.bucket)
