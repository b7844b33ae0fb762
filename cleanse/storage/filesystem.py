"""From a URL to the file system that it names.

``s3://``, ``gs://``, ``hdfs://``, ``abfs://`` open with Arrow's own clients; every other protocol (``oss://``, ``sftp://``,
...) with the package that fsspec knows for it. Credentials, regions and endpoints come from where those clients look
for them: environment variables, configuration files, and the parameters of the URL.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from cleanse.errors import CleanseError, UsageError

_QUERY = re.compile(r"\?[A-Za-z_][\w.-]*=.*", re.ASCII | re.DOTALL)  # a mere "?" belongs to a name or a pattern
_PROTOCOL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.ASCII)
_MISSPELT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/", re.ASCII)  # a protocol in capitals, or one slash lost
_HALF_USER = re.compile(r"[^/@:]*:(?!\d*/)[^/@]*/[^@]*@")  # name:half/of/a/secret@, and no host:port/path@1
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

    Raises:
        UsageError: the URL names no place, or is misspelt, and would silently become a folder of this machine.
    """
    if not is_remote(name):
        local = name.removeprefix("file://")
        if _MISSPELT.match(local):
            raise UsageError(
                f"the output {local.partition('/')[0]}/... is neither a folder nor a URL: expected one as in "
                "s3://bucket/folder, the protocol in small letters and two slashes behind it (pathlib.Path drops one: "
                "give it as text)"
            )
        return Path(local), None
    protocol, root, path, parameters = taken_apart(name)
    path = path.rstrip("/")
    if not root + path:
        raise UsageError(f"{name}: names no place: expected protocol://place/path")
    url = f"{protocol}://{root}{path}{parameters}"
    name = f"cleanse-{os.getuid()}-{hashlib.sha256(url.encode()).hexdigest()[:16]}"  # users share the temporary folder
    return Path(tempfile.gettempdir()) / name, url


def opened(url: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URL, and the path within it, without a slash at its end.

    Paths are taken as they are written, as other tools do it: ``%20`` is no blank.

    Raises:
        UsageError: no client for the protocol is installed, or it refuses the URL.
        CleanseError: the client cannot reach what it needs to know before it opens the URL.
    """
    protocol, root, path, query = taken_apart(url)
    native = f"{protocol}://{root.replace('/', '%2F')}/{query}"
    try:
        if protocol not in _NATIVE:
            filesystem, whole = _by_fsspec(url)
            return filesystem, whole.rstrip("/")
        filesystem, base = _native(native)
    except ImportError as error:
        raise UsageError(f"{without_secrets(url)}: no client for {protocol}:// is installed ({error})") from error
    except OSError as error:  # Arrow looks up the region of a bucket, and what Hadoop needs
        hint = ". Check the address, the credentials and the network, and run the same command again"
        raise CleanseError(_not_opened(url, error, native) + hint) from error
    except (ValueError, pa.ArrowException) as error:
        raise UsageError(_not_opened(url, error, native) + "; expected protocol://place/path") from error
    return filesystem, (base.rstrip("/") + path).rstrip("/") or "/"


def _not_opened(url: str, error: Exception, native: str) -> str:
    return f"{without_secrets(url)}: cannot be opened: {said(error, url, native)}"


def said(error: Exception, *urls: str) -> str:
    """What an error of a client says, in one line and without the secrets of the URLs that it may repeat."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    for url in urls:
        line = line.replace(url, without_secrets(url))
    return line


@lru_cache(maxsize=64)
def _native(root: str) -> tuple[fs.FileSystem, str]:
    """One client for all files of a bucket: making it may cost requests."""
    filesystem, path = fs.FileSystem.from_uri(root)
    return filesystem, str(path)


def taken_apart(url: str) -> tuple[str, str, str, str]:
    """Protocol, bucket or host (with a user), path (with the slash before it), and parameters (with their mark).

    A secret may hold slashes, as those of AWS do: what stands before the first slash and looks like a user with half a
    password ends at the next ``@``.
    """
    protocol, _, rest = url.partition("://")
    query = _QUERY.search(rest)
    rest, parameters = (rest[: query.start()], query.group()) if query else (rest, "")
    half = _HALF_USER.match(rest)
    start = half.end() if half else 0
    root, slash, path = rest[start:].partition("/")
    return protocol, rest[:start] + root, slash + path, parameters


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
