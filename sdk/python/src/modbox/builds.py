"""Building images from Dockerfiles, and the events of transfers of images."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass
from typing import Any, AsyncIterable, AsyncIterator, Iterable, Iterator, List, Literal, Mapping, Optional, Tuple, Union

from ._calls import Call, _body, _load, _raw, options_body
from ._decode import _by, decode
from ._schemas import BuildImageOptions, Image
from .errors import ModboxError, new_error


class BuildError(ModboxError):
    """An instruction of a Dockerfile failed, on ``line``; ``exit_code`` is the exit code of its command, 0 when none failed."""

    def __init__(self, code: str, message: str, *, line: int, instruction: str, exit_code: int) -> None:
        super().__init__(code, message)
        self.line = line
        self.instruction = instruction
        self.exit_code = exit_code


@dataclass(frozen=True)
class PullEvent:
    """A report of a pull or push: ``done`` with the image last, ``progress`` before."""

    type: Literal["progress", "done"]
    #: ``waiting``, ``pulling``, ``writing`` or ``pushing``, among others.
    phase: str = ""
    #: Bytes while the phase is ``pulling``.
    done: int = 0
    #: None when it is not known.
    total: Optional[int] = None
    message: str = ""
    image: Optional[Image] = _by(lambda w: decode(Image, w), default=None)


@dataclass(frozen=True)
class BuildEvent:
    """A report of a build; the last report is ``done``, with the image. The other members belong to the types named."""

    type: Literal["step", "output", "warning", "progress", "done"]
    #: Of ``step``: its number, from 1, of so many.
    step: int = 0
    steps: int = 0
    stage: str = ""
    #: Of the Dockerfile.
    line: int = 0
    instruction: str = ""
    #: Its layer was there; it comes after the same step that is not.
    cached: bool = False
    #: Of ``output``.
    data: bytes = _by(base64.b64decode, default=b"")
    #: Of ``progress``, as in PullEvent.
    phase: str = ""
    done: int = 0
    total: Optional[int] = None
    #: Of ``progress`` and ``warning``.
    message: str = ""
    image: Optional[Image] = _by(lambda w: decode(Image, w), default=None)


class ProgressReader:
    """Reads the lines of a build or a transfer from chunks that do not respect the lines."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done = False
        self._rest = b""

    def feed(self, chunk: bytes) -> List[Mapping[str, Any]]:
        """Returns the complete events; raises the server's error."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            wire = _load(line)
            kind = wire.get("type")
            if kind == "error":
                raise _failure(wire)
            self._done = self._done or kind == "done"
            events.append(wire)
        return events

    def end(self) -> None:
        """Says that the stream is over; raises unless the server reported the end."""
        if not self._done:
            raise new_error("connection", f"{self._what}: the connection broke before the end was known")


def _failure(wire: Mapping[str, Any]) -> ModboxError:
    code, message = wire.get("code") or "internal", wire.get("message") or "the server gave no reason"
    if not wire.get("line"):
        return new_error(code, message)
    return BuildError(code, message, line=wire["line"], instruction=wire.get("instruction", ""), exit_code=wire.get("exit_code", 0))


def pull_events(events: Iterable[Mapping[str, Any]]) -> List[PullEvent]:
    """Leaves out unknown members: a newer server may send more."""
    return [decode(PullEvent, wire) for wire in events if wire.get("type") in ("progress", "done")]


def build_events(events: Iterable[Mapping[str, Any]]) -> List[BuildEvent]:
    """As pull_events."""
    kinds = ("step", "output", "warning", "progress", "done")
    return [decode(BuildEvent, wire) for wire in events if wire.get("type") in kinds]


Files = Union[bytes, Iterable[bytes], AsyncIterable[bytes]]


def build(files: Files, o: BuildImageOptions) -> Call[bytes]:
    options = _body(**options_body(BuildImageOptions, o, without=("dockerfile", "path")), dockerfile=o.get("path"))
    boundary = f"modbox-{uuid.uuid4()}"
    head, tail = _envelope(boundary, options, o.get("dockerfile"))
    content: Files
    if isinstance(files, bytes):
        content = head + files + tail
    elif isinstance(files, AsyncIterable):
        content = _wrapped_async(head, files, tail)
    else:
        content = _wrapped(head, files, tail)
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    return Call("POST", "/v1/images/build", _raw, repeatable=False, content=content, headers=headers, timeout=None)


def _envelope(boundary: str, options: Mapping[str, Any], dockerfile: Optional[str]) -> Tuple[bytes, bytes]:
    """The bytes sent before and after the files."""

    def part(head: str) -> str:
        return f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n"

    head = part('name="options"\r\nContent-Type: application/json') + json.dumps(options) + "\r\n"
    if dockerfile is not None:
        head += part('name="dockerfile"') + dockerfile + "\r\n"
    head += part('name="context"; filename="context.tar"\r\nContent-Type: application/octet-stream')
    return head.encode(), f"\r\n--{boundary}--\r\n".encode()


def _wrapped(head: bytes, files: Iterable[bytes], tail: bytes) -> Iterator[bytes]:
    yield head
    yield from files
    yield tail


async def _wrapped_async(head: bytes, files: AsyncIterable[bytes], tail: bytes) -> AsyncIterator[bytes]:
    yield head
    async for chunk in files:
        yield chunk
    yield tail
