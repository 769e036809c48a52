"""The content of uploads, and whether it can be sent again."""

from __future__ import annotations

import io
from typing import Any, Iterator, Tuple

_CHUNK_BYTES = 64 << 10


class _File:
    """The rest of a file from its position on; every iteration begins there anew."""

    def __init__(self, file: Any, start: int) -> None:
        self._file = file
        self._start = start

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(self._start)
        while chunk := self._file.read(_CHUNK_BYTES):
            yield chunk


def upload(content: Any) -> Tuple[Any, bool]:
    """Returns the content as it is sent, and whether it can be sent again: text, bytes, a list of bytes, and a file
    that is not a pipe can.
    """
    if isinstance(content, str):
        return content.encode(), True
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content), True
    if isinstance(content, io.TextIOBase):
        raise TypeError("the file is open as text; open it with the mode 'rb'")
    if not any(hasattr(content, name) for name in ("__iter__", "__aiter__", "read")):
        raise TypeError(f"the content is text, bytes, a binary file, or an iterable of bytes, not {content!r}")
    if isinstance(content, (list, tuple)):
        return content, True
    if hasattr(content, "read") and _seekable(content):
        return _File(content, content.tell()), True
    return content, False


def _seekable(file: Any) -> bool:
    seekable = getattr(file, "seekable", None)
    return callable(seekable) and seekable() is True and hasattr(file, "tell")
