"""From a URL to the file system that it names.

``s3://``, ``gs://``, ``hdfs://``, ``abfs://`` open with Arrow's own clients; every other protocol (``oss://``, ``sftp://``,
...) with the package that fsspec knows for it. Credentials, regions and endpoints come from where those clients look
for them: environment variables, configuration files, and the parameters of the URL.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
from pyarrow import fs

from cleanse.errors import UsageError

_PROTOCOL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.ASCII)
_NATIVE = frozenset({"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})


def is_remote(name: str) -> bool:
    """Whether a name is a URL of another place. ``file://`` is not: that is a path of this machine."""
    match = _PROTOCOL.match(name)
    return match is not None and match.group(1) != "file"


@lru_cache(maxsize=64)
def opened(url: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URL, and the path within it, without a slash at its end.

    Raises:
        UsageError: no client for the protocol is installed, or it refuses the URL.
    """
    protocol = url.partition("://")[0]
    try:
        if protocol in _NATIVE:
            filesystem, path = fs.FileSystem.from_uri(url)
        else:
            filesystem, path = _by_fsspec(url)
    except ImportError as error:
        raise UsageError(f"{url}: no client for {protocol}:// is installed ({error})") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UsageError(f"{url}: cannot be opened: {error}; expected protocol://place/path") from error
    return filesystem, path.rstrip("/")


def _by_fsspec(url: str) -> tuple[fs.FileSystem, str]:
    import fsspec  # noqa: PLC0415 - for rare protocols only

    filesystem, path = fsspec.core.url_to_fs(url)
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), str(path)


def puts_whole(filesystem: fs.FileSystem) -> bool:
    """Whether a file appears in this file system only when its last byte is there, as in an object store."""
    return str(filesystem.type_name) in _OBJECT_STORES


def joined(url: str, name: str) -> str:
    """The URL of a member of a folder; parameters of the folder's URL stay behind the path."""
    path, mark, query = url.partition("?")
    return f"{path.rstrip('/')}/{name}{mark}{query}"
