"""Bytes from files, plain or compressed, in bounded pieces. Damage ends the stream; it does not raise.

A file in another place that cannot be reached is no damage: there reading raises SourceError.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any

import zstandard

from cleanse.sources.places import open_bytes

COMPRESSIONS = {
    ".gz": "gz",
    ".gzip": "gz",
    ".zst": "zst",
    ".zstd": "zst",
    ".bz2": "bz2",
    ".xz": "xz",
}
_MAGIC = {b"\x1f\x8b": "gz", b"\x28\xb5\x2f\xfd": "zst", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz"}
_CHUNK = 256 << 10
_ZSTD_LEAST, _ZSTD_MOST = 1 << 4, 1 << 10
"""Bytes fed at once to zstd, whose decoder has no bound on its output: 1 kB unfolds to 32 MB at most. Less is fed
while the output is large."""

_LARGE = 1 << 20  # bytes of output from one feed

_XZ_MEMORY = 256 << 20


def sniff_compression(head: bytes) -> str | None:
    """The compression that a file's first bytes announce, or None."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)


class PlainStream:
    """A file, or a part of it, as it is."""

    def __init__(self, path: str, start: int = 0) -> None:
        self.file = open_bytes(path)
        self.file.seek(start)
        self.error: str | None = None

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end."""
        try:
            got = self.file.read(size) or b""
            while 0 < len(got) < size:
                more = self.file.read(size - len(got))
                if not more:
                    break
                got += more
        except OSError as error:
            self.error = f"the file cannot be read any further: {error.strerror or error}"
            return b""
        return got

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay to be read."""
        at = self.file.tell()
        head = self.read(size)
        self.file.seek(at)
        return head

    def seek(self, start: int) -> None:
        """Goes on at this byte."""
        self.file.seek(start)

    def close(self) -> None:
        """Gives the file back."""
        self.file.close()


class UnpackedStream:
    """A compressed file, unpacked piece by piece; ``n_out`` bytes so far."""

    def __init__(self, path: str, compression: str) -> None:
        self.file = PlainStream(path)
        self.compression = compression
        self.error: str | None = None
        self.n_in = self.n_out = 0
        self.fed = b""  # input not yet taken by the decoder
        self.held = bytearray()
        self.decoder = self._new()
        self.fresh = True  # the decoder has seen nothing of its stream yet
        self.done = False
        self.portion = _ZSTD_LEAST

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end, or where the file is damaged (see ``error``)."""
        while len(self.held) < size and not self.done:
            try:
                self.held += self._more(size - len(self.held))
            except (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, ValueError) as error:
                self.error = f"damaged {self.compression} data after {self.n_out + len(self.held):,} bytes: {error}"
                self.done = True
        out = bytes(self.held[:size])
        del self.held[:size]
        self.n_out += len(out)
        return out

    def peek(self, size: int) -> bytes:
        """The next bytes, which stay to be read."""
        head = self.read(size)
        self.held[:0] = head
        self.n_out -= len(head)
        return head

    def seek(self, start: int) -> None:
        """Not possible: compressed files are read from beginning to end."""
        raise OSError(f"cannot go to byte {start} of compressed data")

    def close(self) -> None:
        """Gives the file back."""
        self.file.close()

    def _new(self) -> Any:
        if self.compression == "gz":
            return zlib.decompressobj(wbits=31)
        if self.compression == "bz2":
            return bz2.BZ2Decompressor()
        if self.compression == "xz":
            return lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
        return zstandard.ZstdDecompressor().decompressobj()

    def _more(self, room: int) -> bytes:
        """Some more output, perhaps none yet."""
        if self.decoder.eof:  # several streams may follow each other; zeros may pad the end
            rest = (self.decoder.unused_data + self.fed).lstrip(b"\0")
            self.fed = rest or self.file.read(_CHUNK).lstrip(b"\0")
            self.n_in += 0 if rest else len(self.fed)
            if not self.fed:
                self.done = True
                return b""
            self.decoder, self.fresh = self._new(), True
        if not self.fed and self._wants_input():
            self.fed = self.file.read(_CHUNK)
            self.n_in += len(self.fed)
            if not self.fed:
                self.done = True
                flushed: bytes = self.decoder.flush() if self.compression == "gz" else b""
                if not (self.fresh and self.n_out == 0 and not self.held):
                    ends = "the file ends in the middle of a compressed stream"
                    self.error = f"{ends}, after {self.n_out + len(self.held) + len(flushed):,} bytes"
                return flushed
        self.fresh = False
        return self._decode(room)

    def _wants_input(self) -> bool:
        return bool(getattr(self.decoder, "needs_input", True))

    def _decode(self, room: int) -> bytes:
        if self.compression == "zst":
            some, self.fed = self.fed[: self.portion], self.fed[self.portion :]
            unpacked: bytes = self.decoder.decompress(some)
            large = len(unpacked) > _LARGE
            self.portion = max(_ZSTD_LEAST, self.portion // 4) if large else min(_ZSTD_MOST, self.portion * 2)
            return unpacked
        fed, self.fed = self.fed, b""
        out: bytes = self.decoder.decompress(fed, room)
        # At the end of a member zlib shows what is left in both places: it must be fed on only once.
        if self.compression == "gz" and not self.decoder.eof:
            self.fed = self.decoder.unconsumed_tail
        return out


Stream = PlainStream | UnpackedStream


def open_stream(path: str, compression: str | None, start: int = 0) -> Stream:
    """The bytes of a file, unpacked where it is compressed (then ``start`` must be 0)."""
    return UnpackedStream(path, compression) if compression else PlainStream(path, start)
