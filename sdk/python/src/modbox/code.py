"""Results of code that runs in contexts, and the contexts."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Mapping, Optional

from ._decode import _by, _list, _object, decode
from ._schemas import CodeContext, CodeError, CodeScan
from .models import LimitName

__all__ = ["CodeContext", "CodeError", "CodeEvent", "CodeOutput", "CodeResult"]

CodeStatus = Literal["ok", "error", "interrupted", "timed_out", "lost"]


class _Formats:
    """The formats of a value as properties, and as the methods by which Jupyter displays it."""

    def _find(self, mime: str) -> Any:
        raise NotImplementedError

    def _bytes(self, mime: str) -> Optional[bytes]:
        value = self._find(mime)
        return None if value is None else base64.b64decode(value)

    def _text(self, mime: str) -> Optional[str]:
        value = self._find(mime)
        return None if value is None else str(value)

    def _object(self, mime: str) -> Optional[Dict[str, Any]]:
        value = self._find(mime)
        return value if isinstance(value, dict) else None

    @property
    def html(self) -> Optional[str]:
        """HTML, such as the table of a data frame; None without it."""
        return self._text("text/html")

    @property
    def markdown(self) -> Optional[str]:
        """Markdown; None without it."""
        return self._text("text/markdown")

    @property
    def latex(self) -> Optional[str]:
        """LaTeX; None without it."""
        return self._text("text/latex")

    @property
    def svg(self) -> Optional[str]:
        """An image as SVG; None without it."""
        return self._text("image/svg+xml")

    @property
    def png(self) -> Optional[bytes]:
        """An image, such as a plot, as the bytes of a PNG file; None without it."""
        return self._bytes("image/png")

    @property
    def jpeg(self) -> Optional[bytes]:
        """An image as the bytes of a JPEG file; None without it."""
        return self._bytes("image/jpeg")

    @property
    def pdf(self) -> Optional[bytes]:
        """The bytes of a PDF file; None without it."""
        return self._bytes("application/pdf")

    @property
    def json(self) -> Any:
        """A value of JSON (dict, list, str, …); None without it."""
        return self._find("application/json")

    @property
    def chart(self) -> Optional[Dict[str, Any]]:
        """A figure of Matplotlib as data: ``type``, ``title``, axes and ``elements``; None without it. docs/run-code.md has the members."""
        return self._object("application/vnd.modbox.chart+json")

    @property
    def table(self) -> Optional[Dict[str, Any]]:
        """A data frame as data: ``schema``, ``data`` (the first rows, as dicts), ``total_rows`` and ``total_columns``; None without it."""
        return self._object("application/vnd.dataresource+json")

    def _repr_html_(self) -> Optional[str]:
        return self.html

    def _repr_markdown_(self) -> Optional[str]:
        return self.markdown

    def _repr_latex_(self) -> Optional[str]:
        return self.latex

    def _repr_svg_(self) -> Optional[str]:
        return self.svg

    def _repr_png_(self) -> Optional[bytes]:
        return self.png

    def _repr_jpeg_(self) -> Optional[bytes]:
        return self.jpeg


@dataclass(frozen=True)
class CodeOutput(_Formats):
    """A value of code in one or more formats; Jupyter displays it."""

    #: It is the value of the last expression; the code displayed all other values.
    main: bool = False
    #: The value by MIME type, as the server sends it: text for ``text/plain``, ``text/html``, … and SVG, text in
    #: base64 for PNG, JPEG and PDF, a value of JSON for JSON types. The properties have the bytes.
    data: Dict[str, Any] = field(default_factory=dict)
    #: Names a value that the code may replace later; None without a name.
    display_id: Optional[str] = None
    #: MIME types without their values, which are too large.
    omitted: List[str] = field(default_factory=list)

    @property
    def text(self) -> Optional[str]:
        """Plain text; None without it."""
        return self._text("text/plain")

    def _find(self, mime: str) -> Any:
        return self.data.get(mime)


@dataclass(frozen=True)
class CodeResult(_Formats):
    """The result of a run: how it ended, its output, its values and its error.

    ``text`` is the text of the main value; ``png``, ``html`` and the other formats belong to the first value that
    has the format. Jupyter displays them.
    """

    #: ``ok``; ``error``: the code failed, see ``error``; ``interrupted``; ``timed_out``; ``lost``: its interpreter ended.
    status: CodeStatus
    #: The context in which the code ran.
    context_id: str = ""
    #: The context's interpreter had ended and was started again: the state of earlier code is lost.
    restarted: bool = False
    #: The number of the run in its interpreter; 0 if it has none, as in Bash.
    execution_count: int = 0
    #: Milliseconds from its start to its end.
    duration_ms: int = 0
    #: Standard output.
    stdout: str = ""
    #: Standard error.
    stderr: str = ""
    #: The value of the last expression, and all values that the code displayed, in their order.
    results: List[CodeOutput] = _by(_list(CodeOutput), default_factory=list)
    #: The error of the code; None without one.
    error: Optional[CodeError] = _by(_object(CodeError), default=None)
    #: There was more output than a run may have (16 MiB); the server dropped the rest.
    truncated: bool = False
    #: The findings of the scan that the policy of the workspace (``code_scan``) demands; None without a scan.
    scan: Optional[CodeScan] = _by(_object(CodeScan), default=None)
    #: The limit that it exceeded. Code that exceeds ``cpu`` or ``file_size`` is interrupted; for ``memory`` and
    #: ``processes`` the interpreter ends, and its state is lost.
    limit_exceeded: Optional[LimitName] = None

    @property
    def text(self) -> Optional[str]:
        """The value of the last expression as plain text; None without a value."""
        return next((result.text for result in self.results if result.main), None)

    def _find(self, mime: str) -> Any:
        return next((result.data[mime] for result in self.results if mime in result.data), None)


@dataclass(frozen=True)
class CodeEvent:
    """An event of code under way: ``started`` first, ``end`` last. Each member belongs to the types that it names."""

    type: Literal["started", "stdout", "stderr", "result", "error", "end"]
    #: ``started``: the context.
    context_id: str = ""
    #: ``started``: the state of earlier code is lost.
    restarted: bool = False
    #: ``stdout``, ``stderr``: the text.
    text: str = ""
    #: ``result``: the value.
    result: Optional[CodeOutput] = _by(_object(CodeOutput), default=None)
    #: ``result``: it replaces the earlier value with the same ``display_id``.
    update: bool = False
    #: ``error``: the code's error.
    error: Optional[CodeError] = _by(_object(CodeError), default=None)
    #: ``end``: how the code ended.
    status: Optional[CodeStatus] = None
    #: ``end``: the number of the run in its interpreter.
    execution_count: int = 0
    #: ``end``: milliseconds from start to end.
    duration_ms: int = 0
    #: ``end``: the server dropped output.
    truncated: bool = False
    #: ``started``: the findings of the scan that the policy of the workspace demands.
    scan: Optional[CodeScan] = _by(_object(CodeScan), default=None)
    #: ``end``: the limit that the code exceeded.
    limit_exceeded: Optional[LimitName] = None


class CodeCollector:
    """Makes the result of a run from its events."""

    def __init__(self) -> None:
        self._members: Dict[str, Any] = {}
        self._stdout: List[str] = []
        self._stderr: List[str] = []
        self._results: List[CodeOutput] = []

    def add(self, event: CodeEvent) -> None:
        if event.type == "started":
            self._members.update(context_id=event.context_id, restarted=event.restarted, scan=event.scan)
        elif event.type == "stdout":
            self._stdout.append(event.text)
        elif event.type == "stderr":
            self._stderr.append(event.text)
        elif event.type == "result" and event.result is not None:
            self._place(event.result, event.update)
        elif event.type == "error":
            self._members["error"] = event.error
        elif event.type == "end":
            self._members.update(
                status=event.status,
                limit_exceeded=event.limit_exceeded,
                execution_count=event.execution_count,
                duration_ms=event.duration_ms,
                truncated=event.truncated,
            )

    def _place(self, result: CodeOutput, update: bool) -> None:
        for i, earlier in enumerate(self._results):
            if update and earlier.display_id == result.display_id:
                self._results[i] = result
                return
        self._results.append(result)

    def result(self) -> CodeResult:
        """The result, after the event ``end``."""
        return CodeResult(**self._members, stdout="".join(self._stdout), stderr="".join(self._stderr), results=self._results)


def code_event(wire: Mapping[str, Any]) -> Optional[CodeEvent]:
    """Reads an event; None for a ping, and for an event of a newer server."""
    known = ("started", "stdout", "stderr", "result", "error", "end")
    return decode(CodeEvent, wire) if wire.get("type") in known else None
