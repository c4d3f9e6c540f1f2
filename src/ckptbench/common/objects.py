"""Objects of an object store, by their URL: what the project needs of a path, where there is neither a folder nor a rename.

The library is fsspec, with s3fs for S3 and every store with S3's interface. Credentials and the endpoint come from the environment
only (`AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, `AWS_ENDPOINT_URL`), other settings from fsspec's own variables (`FSSPEC_S3`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ckptbench.common.errors import CheckpointError

log = logging.getLogger(__name__)

PACKAGES = {"s3": "s3fs", "memory": "fsspec"}
"""What serves each scheme. Objects in `memory` are those of one process: only tests have them."""
BLOCK_BYTES = 32 << 20
"""Of an object that is read in parts."""
UNANSWERED = (
    "see whether the store answers and has the bucket, and whether the environment has its credentials "
    "(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL)"
)


class StoreError(CheckpointError):
    """The store does not answer, or refuses: nothing is known of the object."""


_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)")


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """An object, or the common beginning of the names of several."""

    url: str
    """Without a slash at its end."""

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.url.rpartition("/")[0])

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    def below(self) -> dict[str, int]:
        """The size of every object whose name begins with this one and a slash, by the rest of its name. Raises CheckpointError."""
        with asking(self, "listed"):
            system = file_system(self.scheme)
            system.invalidate_cache()
            beginning = system._strip_protocol(self.url).rstrip("/") + "/"
            found = system.find(beginning, detail=True)
        return {
            name.removeprefix(beginning): int(about["size"])
            for name, about in found.items()
            if name.startswith(beginning) and about["type"] == "file"
        }

    def read(self) -> bytes:
        """All of the object. Raises CheckpointError."""
        with asking(self, "read"):
            content: bytes = file_system(self.scheme).cat_file(self.url)
        return content

    def blocks(self, size: int) -> Iterator[bytes]:
        """The bytes of an object of this size, in order. It holds one block at a time. Raises CheckpointError."""
        for start in range(0, size, BLOCK_BYTES):
            with asking(self, "read"):
                block: bytes = file_system(self.scheme).cat_file(
                    self.url, start=start, end=min(start + BLOCK_BYTES, size)
                )
            yield block

    def write(self, content: bytes) -> None:
        """Put the object. It is durable when the store has acknowledged it. Raises CheckpointError."""
        with asking(self, "written"):
            file_system(self.scheme).pipe_file(self.url, content)

    def remove(self, *names: str) -> None:
        """Remove these objects below this one. One that is not there is no error. Raises CheckpointError."""
        with asking(self, "removed"), suppress(FileNotFoundError):
            file_system(self.scheme).rm([f"{self.url}/{name}" for name in names])

    def copy(self, target: ObjectPath) -> None:
        """Have the store copy the object. Raises CheckpointError."""
        with asking(self, f"copied to {target}"):
            file_system(self.scheme).cp_file(self.url, target.url)

    @contextmanager
    def open_new(self) -> Iterator[BinaryIO]:
        """A stream of the object's bytes. The object is there when the block has ended without an error.

        After an error nothing is: the upload of its parts is aborted. fsspec's own `with` would complete the object with
        what was written so far.
        """
        stream = file_system(self.scheme).open(self.url, "wb")
        try:
            yield stream
            stream.close()
        except BaseException:
            try:
                stream.discard()
            except Exception as error:  # noqa: BLE001 (the store may be gone, and the first error says more)
                log.warning(
                    "parts of %s stay in the store until a restart (%s)", self, in_words(error)
                )
            with suppress(AttributeError):  # of `memory`
                stream.closed = True  # else the end of the stream's life would complete the object
            raise

    def abort_uploads(self) -> None:
        """Abort uploads in parts below this one that were begun and never completed. Nobody sees them, but they cost.

        Raises CheckpointError.
        """
        if self.scheme != "s3":
            return
        with asking(self, "listed"):
            system = file_system(self.scheme)
            bucket, key, _ = system.split_path(self.url)
            answer: Mapping[str, Any] = system.call_s3(
                "list_multipart_uploads", Bucket=bucket, Prefix=f"{key}/"
            )
            for upload in answer.get("Uploads", ()):
                with suppress(FileNotFoundError):
                    system.abort_mpu(bucket, upload["Key"], upload["UploadId"])


Place = Path | ObjectPath
"""Where a version lies: a folder, or the common beginning of the names of its objects."""


def place_of(text: str) -> Place:
    """The object path of a URL, or the path of a folder."""
    return ObjectPath(text.rstrip("/")) if _URL.fullmatch(text) else Path(text)


def fault_of(text: str) -> str | None:
    """What is wrong with a URL that a user gives. None: nothing, or it is the path of a folder."""
    found = _URL.fullmatch(text)
    if found is None:
        return None
    scheme, rest = found.groups()
    if scheme != "s3":
        return "use a folder, or s3://BUCKET/PREFIX: other stores have S3's interface too, at AWS_ENDPOINT_URL"
    if not re.fullmatch(r"[^/@?#:]+(/[^/?#]+)*/?", rest):
        return "write s3://BUCKET/PREFIX, and nothing else: credentials and options belong in the environment"
    return None


def file_system(scheme: str) -> Any:
    """fsspec's file system, without its cache of listings: other ranks write, too. Raises CheckpointError without its package."""
    try:
        import fsspec

        return fsspec.filesystem(scheme, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise CheckpointError(
            f"{scheme}:// needs the package {PACKAGES.get(scheme, scheme)}, which this environment does not have: install it, or "
            "set checkpoints.folder to a folder"
        ) from error


@contextmanager
def asking(path: ObjectPath, done: str) -> Iterator[None]:
    """Turn every error of the store, whatever library raises it, into one of one line.

    Raises StoreError, or CheckpointError where the store says that the object is not there.
    """
    try:
        yield
    except CheckpointError:
        raise
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} cannot be {done}: it is not there, or its bucket is not"
        ) from error
    except Exception as error:
        raise StoreError(f"{path} cannot be {done} ({in_words(error)}); {UNANSWERED}") from error


def in_words(error: BaseException) -> str:
    """The error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
