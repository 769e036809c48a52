"""Building snapshots, for both clients."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Dict, Iterator, List, Literal, Mapping, Optional, TypeVar, Union

from ._background import AsyncBackground, Background
from ._calls import Call, _body, _into, _load, _nothing, _segment, encoded, options_body
from ._decode import _by, _required, decode, parse_time
from ._schemas import BuildOptions, Snapshot
from .errors import ModboxError, new_error

T = TypeVar("T")

#: The options that the request that finishes a build has.
_FINISH = ("apt_packages", "npm_packages", "pip_packages", "env", "wait_for_quota_seconds")
#: How often a build is asked what it is at.
PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class SnapshotBuildProgress:
    """The progress of the build of a snapshot."""

    #: ``begun``, ``waiting``, ``pulling``, ``fetching``, ``downloading``, ``installing``, ``setup``, ``writing``, and at
    #: last ``done`` or ``failed``, among others.
    phase: str
    #: A description of the phase, for people; of ``failed`` the reason.
    message: str = ""
    #: Counts up to ``total``.
    done: int = 0
    #: It may grow; None when it is not known.
    total: Optional[int] = _by(lambda w: w or None, default=None)


@dataclass(frozen=True)
class SnapshotBuildLine:
    """Something that happened in the build of a snapshot, or a line that one of its tools wrote."""

    #: As of SnapshotBuildProgress.
    phase: str
    message: str
    time: datetime = _required(parse_time)
    #: Lines before it are lost: the server keeps the last 1000, and 64 KiB.
    truncated: bool = False


@dataclass(frozen=True)
class SnapshotBuildEvent:
    """A report of the build of a snapshot; the last report is ``done``. The other members belong to the types named."""

    type: Literal["begun", "progress", "line", "done"]
    #: Of ``begun``, the first unless nothing is to be built: the build's, for its log.
    id: str = ""
    #: Of ``progress``, which may also be ``uploading``, and only of the phases in between, and of ``line``.
    phase: str = ""
    message: str = ""
    #: Of ``progress``, as in SnapshotBuildProgress.
    done: int = 0
    total: Optional[int] = None
    #: Of ``line``, as in SnapshotBuildLine.
    time: Optional[datetime] = None
    truncated: bool = False
    #: Of ``done``, as in BuiltSnapshot.
    snapshot: Optional[Snapshot] = None
    unchanged: bool = False


def begin(runtime: str, o: BuildOptions) -> Call[Dict[str, Any]]:
    body = {"runtime": runtime, **options_body(BuildOptions, o, without=("files", *_FINISH))}
    return Call("POST", "/v1/snapshot-builds", _load, repeatable=False, json=body, timeout=None)


def _path(build: str, call: str) -> str:
    return f"/v1/snapshot-builds/{_segment(build)}/{call}"


def upload(build: str, o: BuildOptions) -> Call[None]:
    headers = {"content-type": "application/gzip"}
    return Call("PUT", _path(build, "files"), _nothing, repeatable=False, content=o.get("files"), headers=headers, timeout=None)


def finish(build: str, o: BuildOptions) -> Call[Snapshot]:
    body = _body(**{name: encoded(o.get(name)) for name in _FINISH})
    return Call("POST", _path(build, "finish"), _into(Snapshot), repeatable=False, json=body, timeout=None)


def log(build: str) -> Call[Dict[str, Any]]:
    return Call("GET", _path(build, "log"), _load, repeatable=True)


def progress(build: str) -> Call[SnapshotBuildProgress]:
    def parse(content: bytes) -> SnapshotBuildProgress:
        wire = _load(content)
        return decode(SnapshotBuildProgress, {**wire, "message": wire.get("detail")})

    return Call("GET", _path(build, "progress"), parse, repeatable=True)


def made(build: str) -> Call[Snapshot]:
    return Call("GET", f"/v1/snapshots/{_segment(build)}", _into(Snapshot), repeatable=True)


@contextmanager
def named(build: str) -> Iterator[None]:
    """Adds the build to the messages of errors: the log of the build has details."""
    try:
        yield
    except ModboxError as err:
        err.message = f"build {build}: {err.message}"
        err.args = (err.message,)
        raise


def unchanged(begun: Mapping[str, Any]) -> Optional[SnapshotBuildEvent]:
    if not begun.get("unchanged"):
        return None
    return SnapshotBuildEvent("done", snapshot=decode(Snapshot, begun["snapshot"]), unchanged=True)


def beginning(build: str, o: BuildOptions) -> List[SnapshotBuildEvent]:
    begun = [SnapshotBuildEvent("begun", id=build)]
    return begun if o.get("files") is None else [*begun, SnapshotBuildEvent("progress", phase="uploading", message="its files")]


class Reporter:
    """Remembers the reported events of a build, returns only new events, and knows whether its finish will still be answered."""

    def __init__(self) -> None:
        self._last: Optional[Mapping[str, Any]] = None
        self._at: Optional[SnapshotBuildEvent] = None
        self._lost: Optional[ModboxError] = None

    def lines(self, log: Dict[str, Any]) -> List[SnapshotBuildLine]:
        items: List[Mapping[str, Any]] = log["lines"]
        # The server keeps the last lines only, so the position of the last reported line may have changed. Consecutive
        # lines differ, and times are in nanoseconds.
        begin = len(items)
        while begin and items[begin - 1] != self._last:
            begin -= 1
        if begin < len(items):
            self._last = items[-1]
        truncated = bool(log.get("truncated"))
        return [decode(SnapshotBuildLine, {**items[i], "truncated": truncated and i == 0}) for i in range(begin, len(items))]

    def new_events(self, at: SnapshotBuildProgress, log: Dict[str, Any]) -> List[SnapshotBuildEvent]:
        events = [
            SnapshotBuildEvent("line", phase=line.phase, message=line.message, time=line.time, truncated=line.truncated)
            for line in self.lines(log)
        ]
        event = SnapshotBuildEvent("progress", phase=at.phase, message=at.message, done=at.done, total=at.total)
        if event != self._at and at.phase not in ("begun", "done", "failed"):
            self._at = event
            events.append(event)
        return events

    def lost(self, answer: Union[Background[Snapshot], AsyncBackground[Snapshot]]) -> bool:
        """Whether the answer to a finish leaves the state of the build open; the build may continue.

        That is the case if the connection broke, or a proxy did not wait for the server's answer.
        """
        err = answer.exception() if answer.done() else None
        if isinstance(err, ModboxError) and (err.code == "connection" or err.request_id is None and err.status in (502, 504)):
            self._lost = err
        return self._lost is not None

    def over(self, at: SnapshotBuildProgress) -> bool:
        """Whether a build without an answer is done; raises if it cannot complete any more."""
        if at.phase == "begun" and self._lost:
            raise self._lost  # the server did not receive the finish
        if at.phase == "failed":
            raise new_error("internal", at.message)
        return at.phase == "done"
