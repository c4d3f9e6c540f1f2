"""Archives of datasets: their download, and the check of their checksum."""

from __future__ import annotations

import http.client
import shutil
import urllib.request
from pathlib import Path

from ckptbench.errors import DataError
from ckptbench.machine.files import file_sha256
from ckptbench.machine.removal import remove_or_warn
from ckptbench.remedies import blame

TIMEOUT_SECONDS = 60


def verify(archive: Path, sha256: str, *, remedy: str) -> None:
    """Raises DataError if `archive` cannot be read or its SHA-256 is not `sha256`."""
    try:
        found = file_sha256(archive)
    except OSError as error:
        raise DataError(
            f"{archive}: the archive cannot be read: {blame(error, archive, remedy, reading=True)}"
        ) from error
    if found != sha256.lower():
        raise DataError(
            f"{archive}: incomplete, or not the expected archive: its SHA-256 is {found}, expected "
            f"{sha256}; remove it, or {remedy}"
        )


def download(url: str, archive: Path, sha256: str, *, setting: str) -> None:
    """Fetch `url` to `archive`, which appears only when it is complete and its checksum is right.

    Raises DataError if that fails. Its message names `setting`, with which a user can name a copy fetched elsewhere.
    """
    partial = archive.with_name(archive.name + ".partial")
    remedy = f"fetch it elsewhere and set {setting} to its path"
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response,
            partial.open("wb") as file,
        ):
            shutil.copyfileobj(response, file)
        found = file_sha256(partial)
        if found != sha256.lower():
            raise DataError(
                f"{url}: the downloaded file has SHA-256 {found}, expected {sha256}; {remedy}"
            )
        partial.replace(archive)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(f"{url} cannot be fetched to {archive}: {reason}; {remedy}") from error
    finally:
        remove_or_warn(partial)
