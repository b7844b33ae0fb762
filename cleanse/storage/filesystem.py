"""From a URL to the file system that it names.

``s3://``, ``gs://``, ``hdfs://``, ``abfs://`` open with Arrow's own clients; every other protocol (``oss://``, ``sftp://``,
...) with the package that fsspec knows for it. Credentials, regions and endpoints come from where those clients look
for them: environment variables, configuration files, and the parameters of the URL.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from cleanse.errors import UsageError

_QUERY = re.compile(r"\?[A-Za-z_][\w.-]*=.*", re.ASCII | re.DOTALL)  # a mere "?" belongs to a name or a pattern
_PROTOCOL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.ASCII)
_NATIVE = frozenset({"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})
_CONTAINER_FIRST = frozenset({"abfs", "abfss"})
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})


def is_remote(name: str) -> bool:
    """Whether a name is a URL of another place. ``file://`` is not: that is a path of this machine."""
    match = _PROTOCOL.match(name)
    return match is not None and match.group(1) != "file"


def without_secrets(url: str) -> str:
    """The URL as people may see it: without a password, a user's name, or parameters. Other names stay as they are.

    ``abfs://container@account/...`` keeps its container.
    """
    if not is_remote(url):
        return url
    protocol, root, path, _ = taken_apart(url)
    user, at, host = root.rpartition("@")
    kept = user.partition(":")[0] + at if protocol in _CONTAINER_FIRST else ""
    return f"{protocol}://{kept}{host}{path}"


def on_disk(name: str) -> Path:
    """The folder of a finished scan, for commands that change it or read records one by one.

    Raises:
        UsageError: it is a URL; the message says what to do.
    """
    if is_remote(name):
        url = without_secrets(name)
        raise UsageError(
            f"{url} is no folder of this machine: copy it to a disk first (aws s3 sync {url} OUT, or what your store "
            "has for it) and name the copy"
        )
    return Path(name)


def output(name: str) -> tuple[Path, str | None]:
    """Where a run keeps its files on this machine, and the URL that its output goes to, if ``name`` is one.

    The folder for a URL follows from it, so that two runs of one machine that would write there exclude each other.
    """
    if not is_remote(name):
        return Path(name.removeprefix("file://")), None
    url = name.rstrip("/")
    return Path(tempfile.gettempdir()) / f"cleanse-{hashlib.sha256(url.encode()).hexdigest()[:16]}", url


def opened(url: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URL, and the path within it, without a slash at its end.

    Paths are taken as they are written, as other tools do it: ``%20`` is no blank.

    Raises:
        UsageError: no client for the protocol is installed, or it refuses the URL.
    """
    protocol, root, path, query = taken_apart(url)
    try:
        if protocol not in _NATIVE:
            filesystem, whole = _by_fsspec(url)
            return filesystem, whole.rstrip("/")
        filesystem, base = _native(f"{protocol}://{root}/{query}")
    except ImportError as error:
        raise UsageError(f"{without_secrets(url)}: no client for {protocol}:// is installed ({error})") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0].replace(url, without_secrets(url))
        raise UsageError(
            f"{without_secrets(url)}: cannot be opened: {reason}; expected protocol://place/path"
        ) from error
    return filesystem, (base.rstrip("/") + path).rstrip("/") or "/"


@lru_cache(maxsize=64)
def _native(root: str) -> tuple[fs.FileSystem, str]:
    """One client for all files of a bucket: making it may cost requests."""
    filesystem, path = fs.FileSystem.from_uri(root)
    return filesystem, str(path)


def taken_apart(url: str) -> tuple[str, str, str, str]:
    """Protocol, bucket or host (with a user), path (with the slash before it), and parameters (with their mark)."""
    protocol, _, rest = url.partition("://")
    query = _QUERY.search(rest)
    rest, parameters = (rest[: query.start()], query.group()) if query else (rest, "")
    root, slash, path = rest.partition("/")
    return protocol, root, slash + path, parameters


def _by_fsspec(url: str) -> tuple[fs.FileSystem, str]:
    import fsspec  # noqa: PLC0415 - for rare protocols only

    filesystem, path = fsspec.core.url_to_fs(url)
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), str(path)


def puts_whole(filesystem: fs.FileSystem) -> bool:
    """Whether a file appears in this file system only when its last byte is there, as in an object store."""
    return str(filesystem.type_name) in _OBJECT_STORES


def joined(url: str, name: str) -> str:
    """The URL of a member of a folder; parameters of the folder's URL stay behind the path."""
    protocol, root, path, parameters = taken_apart(url)
    return f"{protocol}://{root}{path.rstrip('/')}/{name}{parameters}"
