# Made from ../_async/snapshotbuilds.py by tools/unasync.py. Change that file, then run make gen.
"""Building snapshots."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generator, List, Optional, Tuple

from .. import _snapshotbuilds as calls
from .._background import Background
from .._decode import decode
from .._schemas import BuildOptions, Snapshot
from .._snapshotbuilds import SnapshotBuildEvent, SnapshotBuildLine, SnapshotBuildProgress, Reporter
from ..errors import ModboxError
from ..records import BuiltSnapshot
from .requester import Requester

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SnapshotBuilds:
    """The part of Snapshots that is about building them."""

    _requester: Requester

    def build(self, runtime: str, **options: Unpack[BuildOptions]) -> BuiltSnapshot:
        """Builds a snapshot on an image, described by the members of BuildOptions; never sent twice.

        Returns when sandboxes can be made from it. Errors begin with the id of the build, whose log tells more.
        """
        begun = self._requester.perform(calls.begin(runtime, options))
        if begun.get("unchanged"):
            return BuiltSnapshot(decode(Snapshot, begun["snapshot"]), True)
        with calls.named(begun["id"]):
            if options.get("files") is not None:
                self._requester.perform(calls.upload(begun["id"], options))
            return BuiltSnapshot(self._requester.perform(calls.finish(begun["id"], options)), False)

    def build_stream(self, runtime: str, **options: Unpack[BuildOptions]) -> Generator[SnapshotBuildEvent, None, None]:
        """As build, and tells what happens meanwhile. The last event is ``done``, or an error is raised.

        A connection that breaks while the build is made does not end it. Closing the iterator at ``begun`` or
        ``uploading`` makes nothing; later, the build goes on: ``Modbox`` waits for it in a thread that keeps no program from its end.
        """
        begun = self._requester.perform(calls.begin(runtime, options))
        unchanged = calls.unchanged(begun)
        if unchanged:
            yield unchanged
            return
        with calls.named(begun["id"]):
            for event in calls.beginning(begun["id"], options):
                yield event
            if options.get("files") is not None:
                self._requester.perform(calls.upload(begun["id"], options))
            events = self._finished(begun["id"], options)
            try:
                for event in events:
                    yield event
            finally:
                events.close()

    def _finished(self, build: str, options: BuildOptions) -> Generator[SnapshotBuildEvent, None, None]:
        """Finishes a build, and tells what happens until its end."""
        reporter = Reporter()
        finish = calls.finish(build, options)
        with Background(lambda: self._requester.perform(finish)) as answer:
            while True:
                answer.wait(calls.PAUSE_SECONDS)
                over = answer.done()
                if reporter.lost(answer):
                    break
                try:
                    _, events = self._new_events(build, reporter)
                except ModboxError:
                    events = []  # the answer has the reason
                for event in events:
                    yield event
                if over:
                    yield SnapshotBuildEvent("done", snapshot=answer.result())
                    return
        while True:
            at, events = self._new_events(build, reporter)
            for event in events:
                yield event
            if reporter.over(at):
                snapshot = self._requester.perform(calls.made(build))
                yield SnapshotBuildEvent("done", snapshot=snapshot)
                return
            time.sleep(calls.PAUSE_SECONDS)

    def _new_events(self, build: str, reporter: Reporter) -> Tuple[SnapshotBuildProgress, List[SnapshotBuildEvent]]:
        at = self._requester.perform(calls.progress(build))  # first: the log of a build that is over is complete
        return at, reporter.new_events(at, self._requester.perform(calls.log(build)))

    def build_log(self, build: str, *, follow: Optional[bool] = None) -> Generator[SnapshotBuildLine, None, None]:
        """Reads what happened in a build, by its id, while it is made and until an hour after it was begun.

        ``follow`` waits for more until the build is over, in whatever way: the last line's phase is
        ``done`` or ``failed``.
        """
        reporter = Reporter()
        while True:
            log = self._requester.perform(calls.log(build))
            for line in reporter.lines(log):
                yield line
            if not follow or log["ended"]:
                return
            time.sleep(calls.PAUSE_SECONDS)

    def build_progress(self, build: str) -> SnapshotBuildProgress:
        """What a build is at, by its id; known for as long as its log."""
        return self._requester.perform(calls.progress(build))
