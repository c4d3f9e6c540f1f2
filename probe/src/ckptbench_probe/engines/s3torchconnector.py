"""s3torchconnector: what its client writes for `S3Checkpoint`, its writer of DCP, and its plugin of Lightning. An object is there when its file is closed."""

from __future__ import annotations

import functools
import sys
from typing import Any

from ckptbench_probe import stores
from ckptbench_probe.engines.calls import argument
from ckptbench_probe.engines.fsspec_files import closing, wrap_method
from ckptbench_probe.harmless import harmless


def patch(module: Any) -> None:
    original = module.S3Client.put_object

    @functools.wraps(original)
    def put_object(self: Any, *args: Any, **kwargs: Any) -> Any:
        file = original(self, *args, **kwargs)
        harmless(_follow)(self, file, args, kwargs)
        return file

    module.S3Client.put_object = put_object


def url_of(args: Any, kwargs: Any) -> str:
    """Of the object that is made or removed."""
    return f"s3://{argument(args, kwargs, 0, 'bucket')}/{argument(args, kwargs, 1, 'key')}"


def _follow(client: Any, file: Any, args: Any, kwargs: Any) -> None:
    setattr(file, stores.MARK, stores.begin(url_of(args, kwargs), Objects(client)))
    wrap_method(type(file), "close", closing)


class Objects:
    """Read by the client that has written them: it has the program's own options."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def invalidate_cache(self) -> None:
        """It keeps nothing."""

    def open(self, url: str, mode: str) -> Any:
        bucket, _, key = url.partition("://")[2].partition("/")
        return self._client.get_object(bucket, key)

    def dcp_reader(self, url: str) -> Any:
        """For `torch.distributed.checkpoint`."""
        reader = sys.modules["torch.distributed.checkpoint"].FileSystemReader(url)
        own = sys.modules["s3torchconnector.dcp"].s3_file_system.S3FileSystem
        reader.fs = own(self._client.region, s3_client=self._client)
        reader.path = reader.fs.init_path(url)
        return reader
