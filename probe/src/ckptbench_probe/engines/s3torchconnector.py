"""s3torchconnector: what its client writes for `S3Checkpoint`, its writer of DCP, and its plugin of Lightning. An object is there when its file is closed."""

from __future__ import annotations

import functools
import sys
from typing import Any

from ckptbench_probe import stores
from ckptbench_probe.engines.fsspec_files import closing, wrap_method
from ckptbench_probe.harmless import harmless


def patch(module: Any) -> None:
    original = module.S3Client.put_object

    @functools.wraps(original)
    def put_object(self: Any, bucket: str, key: str, *args: Any, **kwargs: Any) -> Any:
        file = original(self, bucket, key, *args, **kwargs)
        harmless(_follow)(self, f"s3://{bucket}/{key}", file)
        return file

    module.S3Client.put_object = put_object


def _follow(client: Any, url: str, file: Any) -> None:
    setattr(file, stores.MARK, stores.begin(url, Objects(client)))
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
