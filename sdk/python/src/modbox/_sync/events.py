# Made from ../_async/events.py by tools/unasync.py. Change that file, then run make gen.
"""The events of all sandboxes of a workspace."""

from __future__ import annotations

import time
from typing import Generator, Optional, Sequence

from .. import _events as calls
from .._events import Position, Time
from .._pages import Page
from .._schemas import Event
from ..errors import ModboxError
from .requester import Requester


class Events:
    """The events of all sandboxes of the workspace.

    ``sandbox`` selects a sandbox by its id or name, ``types`` events by their types, such as ``created``.
    """

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def list(
        self,
        *,
        sandbox: Optional[str] = None,
        types: Sequence[str] = (),
        since: Optional[Time] = None,
        until: Optional[Time] = None,
        after_seq: Optional[int] = None,
        order: Optional[str] = None,
        limit: Optional[int] = None,
        cursor: Optional[str] = None,
    ) -> Page[Event]:
        """Lists events, the oldest first, unless ``order`` is ``desc``."""
        return Page(self._requester, calls.list_events(sandbox, types, since, until, after_seq, order), limit, cursor)

    def follow(
        self,
        *,
        sandbox: Optional[str] = None,
        types: Sequence[str] = (),
        since: Optional[Time] = None,
        after_seq: Optional[int] = None,
    ) -> Generator[Event, None, None]:
        """Yields events as they happen, without end.

        It begins after the event ``after_seq``, else with the first event after ``since``, else with the next event to
        come. When the connection breaks or the server restarts, it connects again and goes on after the last event:
        none is missing and none comes twice. Closing the generator ends it. Raises ModboxError when the first
        connection cannot be made, and when the token loses its rights.
        """
        position = Position(sandbox, types, since, after_seq)
        while True:
            failed: Optional[ModboxError] = None
            chunks = self._requester.stream(position.call())
            try:
                for chunk in chunks:
                    for last, event in position.feed(chunk):
                        position.reached(last)
                        if event is not None:
                            yield event
            except ModboxError as err:
                failed = err
            finally:
                chunks.close()
            time.sleep(position.pause(failed))
