"""Executions and their streams, for both clients."""

from __future__ import annotations

import time
from typing import Any, Dict, Literal, Optional

from ._calls import DEFAULT, WAIT_SLACK_SECONDS, Call, Listing, _body, _into, _load, _nothing, _query, _raw, _segment, listing, sandbox_path
from ._schemas import Execution
from .errors import ModboxError, new_error

#: How often in a row a connection may break at once, without a byte, before it is given up.
_MAX_FRUITLESS = 3
#: A connection that held for so long was none that broke at once.
_HELD_SECONDS = 10.0


def start(ref: str, body: Dict[str, Any], wait_seconds: Optional[int]) -> Call[Execution]:
    return Call(
        "POST",
        sandbox_path(ref, "/executions"),
        _into(Execution),
        repeatable=False,
        json={**body, **_body(wait_seconds=wait_seconds)},
        timeout=wait_seconds + WAIT_SLACK_SECONDS if wait_seconds else DEFAULT,
    )


def list_executions(ref: str, kind: Optional[str]) -> Listing[Execution]:
    return listing(Execution, sandbox_path(ref, "/executions"), kind=kind)


def get(execution_id: str, wait_seconds: Optional[int] = None) -> Call[Execution]:
    path = _query(f"/v1/executions/{_segment(execution_id)}", wait_seconds=wait_seconds)
    timeout = wait_seconds + WAIT_SLACK_SECONDS if wait_seconds else DEFAULT
    return Call("GET", path, _into(Execution), repeatable=True, timeout=timeout)


def cancel(execution_id: str, force: Optional[bool]) -> Call[Execution]:
    path = f"/v1/executions/{_segment(execution_id)}/cancel"
    return Call("POST", path, _into(Execution), repeatable=True, json=_body(force=force))


def _stream_path(stream_id: str) -> str:
    return f"/v1/streams/{_segment(stream_id)}"


def read_stream(stream_id: str, offset: int, follow: Optional[bool], timestamps: Optional[bool]) -> Call[bytes]:
    path = _query(_stream_path(stream_id), offset=offset or None, follow=follow, timestamps=timestamps)
    return Call("GET", path, _raw, repeatable=True, timeout=None if follow else DEFAULT)


def create_stream() -> Call[str]:
    def parse(content: bytes) -> str:
        return str(_load(content)["id"])

    return Call("POST", "/v1/streams", parse, repeatable=True)


def write_stream(stream_id: str, content: Any, end: Optional[bool]) -> Call[None]:
    return Call(
        "PUT",
        _query(_stream_path(stream_id), eof=end),
        _nothing,
        repeatable=False,
        content=content.encode() if isinstance(content, str) else content,
        headers={"content-type": "application/octet-stream"},
        timeout=None,
    )


def ended(execution: Execution, over: bool, timeout_seconds: float) -> bool:
    """Whether a wait is done; raises when its time is over."""
    if execution.state not in ("queued", "running"):
        return True
    if over:
        raise new_error("timeout", f"execution {execution.id} is still {execution.state} after {timeout_seconds:g} s")
    return False


def stream_of(execution: Execution, output: Literal["stdout", "stderr"]) -> str:
    """The id of an execution's stream."""
    kept = execution.stdout if output == "stdout" else execution.stderr
    if not kept.stream_id:
        raise new_error("not_found", f"execution {execution.id} keeps no {output}")
    return kept.stream_id


class Position:
    """Where a reader of a stream is, and whether it may go on after a broken connection."""

    def __init__(self, offset: int, timestamps: Optional[bool]) -> None:
        self.offset = offset
        self._timestamps = timestamps
        self._fruitless = 0

    def connecting(self) -> None:
        self._began = time.monotonic()
        self._from = self.offset

    def broke(self, err: ModboxError) -> None:
        """Raises err unless it is worth connecting again."""
        if err.code != "connection" or self._timestamps:
            raise err
        held = self.offset > self._from or time.monotonic() - self._began > _HELD_SECONDS
        self._fruitless = 0 if held else self._fruitless + 1
        if self._fruitless > _MAX_FRUITLESS:
            raise err
