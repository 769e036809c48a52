"""Code that keeps its state, for both clients."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ._calls import DEFAULT_EXEC_SECONDS, WAIT_SLACK_SECONDS, Call, Listing, _body, _into, _load, _nothing, _raw, _segment, encoded, listed, listing, sandbox_path
from ._schemas import CodeContext, CodeScan, ExecLimits
from .code import CodeEvent, CodeResult, code_event
from .errors import new_error


def code_body(
    code: str,
    language: Optional[str],
    context_id: Optional[str],
    timeout_seconds: Optional[int],
    limits: Optional[ExecLimits] = None,
) -> Dict[str, Any]:
    if not isinstance(code, str):
        raise TypeError(f"code is a str, not {type(code).__name__}")
    return _body(code=code, language=language, context_id=context_id, timeout_seconds=timeout_seconds, limits=encoded(limits, "limits"))


def run(ref: str, body: Dict[str, Any]) -> Call[CodeResult]:
    # The code may wait for earlier code in its context, for as long as that takes.
    return Call("POST", sandbox_path(ref, "/code"), _into(CodeResult), repeatable=False, json=body, timeout=None)


def stream(ref: str, body: Dict[str, Any]) -> Call[bytes]:
    return Call("POST", sandbox_path(ref, "/code/stream"), _raw, repeatable=False, json=body, timeout=None)


def scan(ref: str, code: str, language: Optional[str], allowed_imports: Optional[Sequence[str]]) -> Call[CodeScan]:
    if not isinstance(code, str):
        raise TypeError(f"code is a str, not {type(code).__name__}")
    body = _body(code=code, language=language, allowed_imports=listed(allowed_imports))
    return Call("POST", sandbox_path(ref, "/code/scan"), _into(CodeScan), repeatable=True, json=body)


class CodeReader:
    """Reads the lines of a stream of code from chunks that may end within a line."""

    def __init__(self) -> None:
        self._ended = False
        self._rest = b""

    def feed(self, chunk: bytes) -> List[CodeEvent]:
        """Returns the complete events; raises the server's error."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            wire = _load(line)
            if wire.get("type") == "failure":
                raise new_error(wire.get("code") or "internal", wire.get("message") or "the server gave no reason")
            event = code_event(wire)
            if event is not None:
                self._ended = self._ended or event.type == "end"
                events.append(event)
        return events

    def end(self) -> None:
        """Raises unless the code's end was among the events."""
        if not self._ended:
            raise new_error("connection", "the connection broke before the code's end was known")


def list_contexts(ref: str) -> Listing[CodeContext]:
    return listing(CodeContext, sandbox_path(ref, "/contexts"))


def create_context(
    ref: str, language: Optional[str], cwd: Optional[str], env: Optional[Mapping[str, str]], limits: Optional[ExecLimits]
) -> Call[CodeContext]:
    body = _body(language=language, cwd=cwd, env=env, limits=encoded(limits, "limits"))
    path, timeout = sandbox_path(ref, "/contexts"), DEFAULT_EXEC_SECONDS + WAIT_SLACK_SECONDS
    return Call("POST", path, _into(CodeContext), repeatable=False, json=body, timeout=timeout)


def _context_path(ref: str, context: Union[CodeContext, str], call: str = "") -> str:
    context_id = context.id if isinstance(context, CodeContext) else context
    return sandbox_path(ref, f"/contexts/{_segment(context_id)}{call}")


def interrupt_context(ref: str, context: Union[CodeContext, str]) -> Call[None]:
    return Call("POST", _context_path(ref, context, "/interrupt"), _nothing, repeatable=False)


def restart_context(ref: str, context: Union[CodeContext, str]) -> Call[CodeContext]:
    path, timeout = _context_path(ref, context, "/restart"), DEFAULT_EXEC_SECONDS + WAIT_SLACK_SECONDS
    return Call("POST", path, _into(CodeContext), repeatable=False, timeout=timeout)


def delete_context(ref: str, context: Union[CodeContext, str]) -> Call[None]:
    return Call("DELETE", _context_path(ref, context), _nothing, repeatable=False)
