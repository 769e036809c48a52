"""The events of all sandboxes of a workspace, for both clients."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from ._calls import Call, Listing, _load, _query, _raw, listing
from ._decode import decode
from ._schemas import Event
from .errors import ModboxError, new_error

Time = Union[datetime, str]

#: The server sends something every 15 seconds; after this silence the stream connects again.
SILENCE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.2
_MAX_PAUSE_SECONDS = 15.0
_TEMPORARY = ("connection", "timeout", "unavailable", "quota_exceeded", "internal")


def _instant(at: Optional[Time]) -> Optional[str]:
    return at.isoformat() if isinstance(at, datetime) else at


def list_events(
    sandbox: Optional[str],
    types: Sequence[str],
    since: Optional[Time],
    until: Optional[Time],
    after_seq: Optional[int],
    order: Optional[str],
) -> Listing[Event]:
    pairs = [("type", name) for name in types]
    return listing(
        Event, "/v1/events", pairs, sandbox=sandbox, since=_instant(since), until=_instant(until), after_seq=after_seq, order=order
    )


class Position:
    """How far a stream has come, over any number of connections."""

    def __init__(self, sandbox: Optional[str], types: Sequence[str], since: Optional[Time], after_seq: Optional[int]) -> None:
        pairs: List[Tuple[str, Any]] = [("type", name) for name in types]
        self._path = _query("/v1/events/stream", pairs, sandbox=sandbox, since=_instant(since))
        self._last = None if after_seq is None else str(after_seq)
        self._before = self._last
        self._known = False
        self._pause = _FIRST_PAUSE_SECONDS
        self._rest = b""

    def call(self) -> Call[bytes]:
        """The call of the next connection."""
        self._rest = b""
        self._before = self._last
        headers = {} if self._last is None else {"last-event-id": self._last}
        return Call("GET", self._path, _raw, repeatable=not self._known, headers=headers, timeout=SILENCE_SECONDS)

    def feed(self, chunk: bytes) -> List[Tuple[Optional[str], Optional[Event]]]:
        """Returns the messages that are complete, with their ids; raises the server's error."""
        self._known = True
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        return [_message(block) for block in blocks]

    def reached(self, last: Optional[str]) -> None:
        """Notes the id of a message before its event is given away."""
        if last is not None:
            self._last = last

    def pause(self, err: Optional[ModboxError]) -> float:
        """Returns the seconds until the next connection; raises err when none may help."""
        if err is not None and (not self._known or err.code not in _TEMPORARY):
            raise err
        if self._last != self._before:
            self._pause = _FIRST_PAUSE_SECONDS
        seconds = self._pause * random.uniform(0.5, 1)
        self._pause = min(2 * self._pause, _MAX_PAUSE_SECONDS)
        return max(seconds, err.retry_after if err is not None else 0.0)


def _message(block: bytes) -> Tuple[Optional[str], Optional[Event]]:
    fields: Dict[str, str] = {}
    data: List[str] = []
    for line in block.decode().split("\n"):
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            data.append(value)
        else:
            fields[name] = value
    if fields.get("event") == "problem":
        problem = _load("\n".join(data))
        raise new_error(problem.get("code") or "internal", problem.get("detail") or "the server gave no reason")
    event = decode(Event, _load("\n".join(data))) if data and "event" not in fields else None
    return fields.get("id"), event
