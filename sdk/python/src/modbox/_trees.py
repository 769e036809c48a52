"""Files by the many: batches, archives and watches, for both clients."""

from __future__ import annotations

import base64
from typing import Any, List, Mapping, Optional, Union

from ._calls import Call, _body, _load, _nothing, _query, _raw, sandbox_path
from ._decode import decode
from ._uploads import upload
from .errors import new_error
from .models import FileEvent


def write_many(ref: str, files: Mapping[str, Union[str, bytes]], mode: Optional[str]) -> Call[None]:
    def encode(path: str, content: Union[str, bytes]) -> Any:
        data = content.encode() if isinstance(content, str) else content
        return _body(path=path, content=base64.b64encode(data).decode(), mode=mode)

    json = {"files": [encode(path, content) for path, content in files.items()]}
    return Call("POST", sandbox_path(ref, "/files/batch"), _nothing, repeatable=True, json=json)


def upload_archive(ref: str, path: str, archive: Any, format: Optional[str], keep_links: Optional[bool]) -> Call[None]:
    if isinstance(archive, str):
        raise TypeError(f"an archive is bytes, a binary file, or an iterable of bytes, not {archive[:100]!r}")
    data, again = upload(archive)
    return Call(
        "PUT",
        _query(sandbox_path(ref, "/files/archive"), path=path, format=format, keep_links=keep_links),
        _nothing,
        repeatable=again,
        content=data,
        headers={"content-type": "application/octet-stream"},
        timeout=None,
    )


def download_archive(ref: str, path: str, format: Optional[str]) -> Call[bytes]:
    return Call("GET", _query(sandbox_path(ref, "/files/archive"), path=path, format=format), _raw, repeatable=True)


def watch(ref: str, path: str, recursive: Optional[bool]) -> Call[bytes]:
    call = _query(sandbox_path(ref, "/files/watch"), path=path, recursive=recursive)
    return Call("GET", call, _raw, repeatable=True, timeout=None)


class WatchReader:
    """Reads the lines of a watch from chunks that do not respect the lines."""

    def __init__(self) -> None:
        self.ready = False
        self.ended = False
        self._rest = b""

    def feed(self, chunk: bytes) -> List[FileEvent]:
        """Returns the events that are complete; raises the server's error."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            wire = _load(line)
            kind = wire.get("type")
            if kind == "error":
                raise new_error(wire.get("code") or "internal", wire.get("message") or "the server gave no reason")
            self.ready = self.ready or kind == "ready"
            self.ended = self.ended or kind == "ended"
            if kind in KINDS:  # A newer server may send more.
                events.append(decode(FileEvent, wire))
        return events

    def end(self) -> None:
        """Says that the stream is over; raises unless the server has said so."""
        if not self.ended:
            raise new_error("connection", "the connection broke while the watch was under way")


KINDS = ("created", "modified", "attributes", "removed", "moved_from", "moved_to", "overflow", "limit")
