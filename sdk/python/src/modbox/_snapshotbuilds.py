"""Building snapshots, for both clients."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, AsyncGenerator, Callable, Dict, Generator, Iterator, List, Literal, Mapping, Optional, Tuple, TypeVar, Union

from ._calls import Call, _body, _into, _load, _nothing, _segment, known, listed
from .errors import ModboxError, new_error
from .models import _by, _time, decode
from .options import BuildOptions
from .records import BuiltSnapshot, Snapshot

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import aio, client

T = TypeVar("T")

#: How often a build is asked what it is at.
PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class SnapshotBuildProgress:
    """What the build of a snapshot is at."""

    #: ``begun``, ``waiting``, ``pulling``, ``fetching``, ``downloading``, ``installing``, ``setup``, ``writing``, and at
    #: last ``done`` or ``failed``, among others.
    phase: str
    #: What the phase is about, for people; of ``failed`` why.
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
    time: datetime = _time()
    #: Lines before it are lost: the server keeps the last 1000, and 64 KiB.
    truncated: bool = False


@dataclass(frozen=True)
class SnapshotBuildEvent:
    """What the build of a snapshot reports; the last one is ``done``. The other members belong to the types named."""

    type: Literal["begun", "progress", "line", "done"]
    #: Of ``begun``, the first unless nothing is to be built: the build's, for its log.
    id: str = ""
    #: Of ``progress``, which may be ``uploading``, too, and only of the phases in between, and of ``line``.
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


def _begin(runtime: str, o: BuildOptions) -> Call[Dict[str, Any]]:
    known(BuildOptions, o)
    names = ("name", "tag", "description", "message", "metadata", "public", "dir", "content_hash", "force")
    body = _body(runtime=runtime, **{name: o.get(name) for name in names})
    return Call("POST", "/v1/snapshots/builds", _load, repeatable=False, json=body, timeout=None)


def _path(build: str, call: str) -> str:
    return f"/v1/snapshots/builds/{_segment(build)}/{call}"


def _upload(build: str, o: BuildOptions) -> Call[None]:
    headers = {"content-type": "application/gzip"}
    return Call("PUT", _path(build, "files"), _nothing, repeatable=False, content=o.get("files"), headers=headers, timeout=None)


def _finish(build: str, o: BuildOptions) -> Call[Snapshot]:
    body = _body(
        dependencies=listed(o.get("dependencies")),
        packages=listed(o.get("packages")),
        env=o.get("env"),
        wait_for_quota_seconds=o.get("wait_for_quota_seconds"),
    )
    return Call("POST", _path(build, "finish"), _into(Snapshot), repeatable=False, json=body, timeout=None)


def _log(build: str) -> Call[Dict[str, Any]]:
    return Call("GET", _path(build, "log"), _load, repeatable=True)


def _progress(build: str) -> Call[SnapshotBuildProgress]:
    def parse(content: bytes) -> SnapshotBuildProgress:
        wire = _load(content)
        return decode(SnapshotBuildProgress, {**wire, "message": wire.get("detail")})

    return Call("GET", _path(build, "progress"), parse, repeatable=True)


def _made(build: str) -> Call[Snapshot]:
    return Call("GET", f"/v1/snapshots/{_segment(build)}", _into(Snapshot), repeatable=True)


@contextmanager
def _named(build: str) -> Iterator[None]:
    """Has errors say whose they are: the log of a build that failed says more."""
    try:
        yield
    except ModboxError as err:
        err.message = f"build {build}: {err.message}"
        err.args = (err.message,)
        raise


def _unchanged(begun: Mapping[str, Any]) -> Optional[SnapshotBuildEvent]:
    if not begun.get("unchanged"):
        return None
    return SnapshotBuildEvent("done", snapshot=decode(Snapshot, begun["snapshot"]), unchanged=True)


def _beginning(build: str, o: BuildOptions) -> List[SnapshotBuildEvent]:
    begun = [SnapshotBuildEvent("begun", id=build)]
    return begun if o.get("files") is None else [*begun, SnapshotBuildEvent("progress", phase="uploading", message="its files")]


class _Teller:
    """Knows what was told of a build, and tells only what is new; and whether its finish will still be answered."""

    def __init__(self) -> None:
        self._last: Optional[Mapping[str, Any]] = None
        self._at: Optional[SnapshotBuildEvent] = None
        self._lost: Optional[ModboxError] = None

    def lines(self, log: Dict[str, Any]) -> List[SnapshotBuildLine]:
        items: List[Mapping[str, Any]] = log["items"]
        # The last of them only are kept: where the one is that was told last may have changed. No line is like the
        # one before, and times are in nanoseconds.
        begin = len(items)
        while begin and items[begin - 1] != self._last:
            begin -= 1
        if begin < len(items):
            self._last = items[-1]
        truncated = bool(log.get("truncated"))
        return [decode(SnapshotBuildLine, {**items[i], "truncated": truncated and i == 0}) for i in range(begin, len(items))]

    def news(self, at: SnapshotBuildProgress, log: Dict[str, Any]) -> List[SnapshotBuildEvent]:
        told = [
            SnapshotBuildEvent("line", phase=line.phase, message=line.message, time=line.time, truncated=line.truncated)
            for line in self.lines(log)
        ]
        event = SnapshotBuildEvent("progress", phase=at.phase, message=at.message, done=at.done, total=at.total)
        if event != self._at and at.phase not in ("begun", "done", "failed"):
            self._at = event
            told.append(event)
        return told

    def lost(self, answer: Union[concurrent.futures.Future[Snapshot], asyncio.Future[Snapshot]]) -> bool:
        """Whether the answer to a finish says nothing of the build, which may go on without.

        That is so when the connection broke, or something in between did not wait for the server's answer.
        """
        err = answer.exception() if answer.done() else None
        if isinstance(err, ModboxError) and (err.code == "connection" or err.request_id is None and err.status in (502, 504)):
            self._lost = err
        return self._lost is not None

    def over(self, at: SnapshotBuildProgress) -> bool:
        """Whether a build that gives no answer is done; raises when it never will be."""
        if at.phase == "begun" and self._lost:
            raise self._lost  # the server has not heard of the finish
        if at.phase == "failed":
            raise new_error("internal", at.message)
        return at.phase == "done"


def _in_background(work: Callable[[], T]) -> concurrent.futures.Future[T]:
    """Does work in a thread that keeps no program from its end."""
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as err:
            future.set_exception(err)

    threading.Thread(target=run, daemon=True).start()
    return future


class SnapshotBuilds:
    """The part of Snapshots that is about building them."""

    _session: client._Session

    def build(self, runtime: str, **options: Unpack[BuildOptions]) -> BuiltSnapshot:
        """Builds a snapshot on an image, described by the members of BuildOptions; never sent twice.

        Returns when sandboxes can be made from it. Errors begin with the id of the build, whose log tells more.
        """
        begun = self._session.perform(_begin(runtime, options))
        if begun.get("unchanged"):
            return BuiltSnapshot(decode(Snapshot, begun["snapshot"]), True)
        with _named(begun["id"]):
            if options.get("files") is not None:
                self._session.perform(_upload(begun["id"], options))
            return BuiltSnapshot(self._session.perform(_finish(begun["id"], options)), False)

    def build_stream(self, runtime: str, **options: Unpack[BuildOptions]) -> Generator[SnapshotBuildEvent, None, None]:
        """As build, and tells what happens meanwhile. The last event is ``done``, or an error is raised.

        A connection that breaks while the build is made does not end it. Closing the iterator at ``begun`` or
        ``uploading`` makes nothing; later, the build goes on, and a thread waits for it, and no program for the thread.
        """
        begun = self._session.perform(_begin(runtime, options))
        unchanged = _unchanged(begun)
        if unchanged:
            yield unchanged
            return
        with _named(begun["id"]):
            yield from _beginning(begun["id"], options)
            if options.get("files") is not None:
                self._session.perform(_upload(begun["id"], options))
            yield from self._finished(begun["id"], options)

    def _finished(self, build: str, options: BuildOptions) -> Generator[SnapshotBuildEvent, None, None]:
        """Finishes a build, and tells what happens until its end."""
        teller = _Teller()
        answer = _in_background(lambda: self._session.perform(_finish(build, options)))
        while True:
            concurrent.futures.wait([answer], PAUSE_SECONDS)
            over = answer.done()
            if teller.lost(answer):
                break
            try:
                told = self._news(build, teller)[1]
            except ModboxError:
                told = []  # the answer says why
            yield from told
            if over:
                yield SnapshotBuildEvent("done", snapshot=answer.result())
                return
        while True:
            at, told = self._news(build, teller)
            yield from told
            if teller.over(at):
                snapshot = self._session.perform(_made(build))
                yield SnapshotBuildEvent("done", snapshot=snapshot)
                return
            time.sleep(PAUSE_SECONDS)

    def _news(self, build: str, teller: _Teller) -> Tuple[SnapshotBuildProgress, List[SnapshotBuildEvent]]:
        at = self._session.perform(_progress(build))  # first: the log of a build that is over is complete
        return at, teller.news(at, self._session.perform(_log(build)))

    def build_log(self, build: str, *, follow: Optional[bool] = None) -> Generator[SnapshotBuildLine, None, None]:
        """Reads what happened in a build, by its id, while it is made and until an hour after it was begun.

        ``follow`` waits for more until the build is over, in whatever way: the last line's phase is
        ``done`` or ``failed``.
        """
        teller = _Teller()
        while True:
            log = self._session.perform(_log(build))
            yield from teller.lines(log)
            if not follow or log["ended"]:
                return
            time.sleep(PAUSE_SECONDS)

    def build_progress(self, build: str) -> SnapshotBuildProgress:
        """What a build is at, by its id; known for as long as its log."""
        return self._session.perform(_progress(build))


class AsyncSnapshotBuilds:
    """The part of AsyncSnapshots that is about building them; as SnapshotBuilds."""

    _session: aio._Session

    async def build(self, runtime: str, **options: Unpack[BuildOptions]) -> BuiltSnapshot:
        """Builds a snapshot on an image, described by the members of BuildOptions; never sent twice.

        Returns when sandboxes can be made from it. Errors begin with the id of the build, whose log tells more.
        """
        begun = await self._session.perform(_begin(runtime, options))
        if begun.get("unchanged"):
            return BuiltSnapshot(decode(Snapshot, begun["snapshot"]), True)
        with _named(begun["id"]):
            if options.get("files") is not None:
                await self._session.perform(_upload(begun["id"], options))
            return BuiltSnapshot(await self._session.perform(_finish(begun["id"], options)), False)

    async def build_stream(self, runtime: str, **options: Unpack[BuildOptions]) -> AsyncGenerator[SnapshotBuildEvent, None]:
        """As build, and tells what happens meanwhile. The last event is ``done``, or an error is raised.

        A connection that breaks while the build is made does not end it. Closing the iterator at ``begun`` or
        ``uploading`` makes nothing; later, the build goes on.
        """
        begun = await self._session.perform(_begin(runtime, options))
        unchanged = _unchanged(begun)
        if unchanged:
            yield unchanged
            return
        with _named(begun["id"]):
            for event in _beginning(begun["id"], options):
                yield event
            if options.get("files") is not None:
                await self._session.perform(_upload(begun["id"], options))
            events = self._finished(begun["id"], options)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()

    async def _finished(self, build: str, options: BuildOptions) -> AsyncGenerator[SnapshotBuildEvent, None]:
        """Finishes a build, and tells what happens until its end."""
        teller = _Teller()
        answer = asyncio.ensure_future(self._session.perform(_finish(build, options)))
        try:
            while True:
                await asyncio.wait([answer], timeout=PAUSE_SECONDS)
                over = answer.done()
                if teller.lost(answer):
                    break
                try:
                    told = (await self._news(build, teller))[1]
                except ModboxError:
                    told = []  # the answer says why
                for event in told:
                    yield event
                if over:
                    yield SnapshotBuildEvent("done", snapshot=answer.result())
                    return
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
        while True:
            at, told = await self._news(build, teller)
            for event in told:
                yield event
            if teller.over(at):
                snapshot = await self._session.perform(_made(build))
                yield SnapshotBuildEvent("done", snapshot=snapshot)
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _news(self, build: str, teller: _Teller) -> Tuple[SnapshotBuildProgress, List[SnapshotBuildEvent]]:
        at = await self._session.perform(_progress(build))  # first: the log of a build that is over is complete
        return at, teller.news(at, await self._session.perform(_log(build)))

    async def build_log(self, build: str, *, follow: Optional[bool] = None) -> AsyncGenerator[SnapshotBuildLine, None]:
        """Reads what happened in a build, by its id, while it is made and until an hour after it was begun.

        ``follow`` waits for more until the build is over, in whatever way: the last line's phase is
        ``done`` or ``failed``.
        """
        teller = _Teller()
        while True:
            log = await self._session.perform(_log(build))
            for line in teller.lines(log):
                yield line
            if not follow or log["ended"]:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def build_progress(self, build: str) -> SnapshotBuildProgress:
        """What a build is at, by its id; known for as long as its log."""
        return await self._session.perform(_progress(build))
