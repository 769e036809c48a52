"""The errors that this client raises.

Every error is a :class:`ModboxError` with a ``code``. docs/errors.md lists the server's codes; ``connection``,
``bad_response`` and ``command_failed`` come from the client.
"""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence

if TYPE_CHECKING:
    from ._schemas import Cause, SandboxInfo
    from .models import ExecResult


@dataclass(frozen=True)
class FieldError:
    """One input field that was refused; ``field`` is its path on the wire, e.g. ``resources.memory``."""

    field: str
    message: str


class ModboxError(Exception):
    """An error with a code; ``status`` is HTTP's, 0 when there was no answer."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 0,
        fields: Sequence[FieldError] = (),
        request_id: Optional[str] = None,
        retry_after: float = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        #: Every refused input field.
        self.fields = list(fields)
        #: The first refused input field; None when no single one is at fault.
        self.field: Optional[str] = self.fields[0].field if self.fields else None
        #: Names the request in the server's log.
        self.request_id = request_id
        #: Seconds after which the server wants to be asked again; 0 when it did not say.
        self.retry_after = retry_after


class ValidationError(ModboxError, ValueError):
    """The request is malformed or out of range; ``field`` says where."""


class AuthError(ModboxError):
    """The token is missing, unknown, expired, or may not do this."""


class CodeBlockedError(ModboxError):
    """The policy of the workspace does not let the code run; the message names rules and lines. Nothing ran."""


class NotFoundError(ModboxError):
    """No such object, or it is another workspace's."""


class FileNotFoundError(NotFoundError, builtins.FileNotFoundError):
    """No such file or directory in the sandbox or snapshot, or a command's ``cwd`` is missing."""


class ProgramNotFoundError(NotFoundError):
    """The sandbox does not have the program of the command."""


class ConflictError(ModboxError):
    """A name is taken, or the object's state does not allow this now."""


class EndedError(ModboxError):
    """The sandbox is gone; the message says why."""


class TimeoutError(ModboxError, builtins.TimeoutError):
    """It did not finish within its time."""


class ConnectionError(ModboxError, builtins.ConnectionError):
    """The server could not be reached, or the connection broke."""


class QuotaError(ModboxError):
    """A limit of the workspace, the host or the sandbox is reached; ``retry_after`` says when to retry, if it can clear."""


class SandboxFailedError(EndedError):
    """The sandbox failed, such as a new sandbox whose image does not exist; ``cause`` says why."""

    def __init__(self, info: SandboxInfo) -> None:
        why = info.cause.message if info.cause else "the server gave no reason"
        super().__init__("ended", f"sandbox {info.name} ({info.image}) failed: {why}")
        #: Its last record.
        self.info = info
        #: The reason of its end; None when it is not known.
        self.cause: Optional[Cause] = info.cause


class CommandError(ModboxError):
    """A command that ran with ``check`` failed, or how a command in the background ended cannot be known."""

    def __init__(self, message: str, result: Optional[ExecResult[str]] = None) -> None:
        super().__init__("command_failed", message)
        #: Its exit code and output; None when the exit code is not known.
        self.result = result


_CLASSES = {
    "invalid": ValidationError,
    "unauthenticated": AuthError,
    "forbidden": AuthError,
    "code_blocked": CodeBlockedError,
    "not_found": NotFoundError,
    "file_not_found": FileNotFoundError,
    "program_not_found": ProgramNotFoundError,
    "exists": ConflictError,
    "conflict": ConflictError,
    "not_running": ConflictError,
    "ended": EndedError,
    "timeout": TimeoutError,
    "quota_exceeded": QuotaError,
    "connection": ConnectionError,
}

# For answers that carry no code, such as the answers of a proxy in between.
_CODES_BY_STATUS = {
    400: "invalid",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    409: "conflict",
    410: "ended",
    413: "too_large",
    422: "invalid",
    429: "unavailable",
    502: "unavailable",
    503: "unavailable",
    504: "timeout",
}


def new_error(code: str, message: str, **more: Any) -> ModboxError:
    """Returns the error of the class that belongs to the code."""
    return _CLASSES.get(code, ModboxError)(code, message, **more)


def error_from_response(status: int, headers: Mapping[str, str], content: bytes) -> ModboxError:
    """Reads the error out of an answer.

    It is RFC 9457 for ``/v1``; ``{"detail": "…"}`` and the 422 body
    ``{"detail": [{"loc", "msg"}]}`` for the routes without a version.
    """
    body: Any = None
    try:
        body = json.loads(content)
    except ValueError:
        pass  # A proxy's page. The status has to do.
    if not isinstance(body, dict):
        body = {}
    fields = _field_errors(body)
    detail = body.get("detail")
    message = (
        (isinstance(detail, str) and detail)
        or body.get("error")
        or "; ".join(f"{f.field}: {f.message}" for f in fields)
        or body.get("title")
        or f"the server answered {status}"
    )
    code = body.get("code") or _CODES_BY_STATUS.get(status) or ("bad_response" if status < 400 else "internal")
    try:
        retry_after = float(headers.get("retry-after", 0))
    except ValueError:
        retry_after = 0  # A date; our server sends seconds.
    return new_error(
        str(code), str(message), status=status, fields=fields, request_id=headers.get("x-request-id"), retry_after=retry_after
    )


def _field_errors(body: Mapping[str, Any]) -> list[FieldError]:
    for items in (body.get("detail"), body.get("errors")):
        if isinstance(items, list):
            return [
                FieldError(_field_path(item.get("loc", item.get("location"))), str(item.get("msg", item.get("message", ""))))
                for item in items
                if isinstance(item, dict)
            ]
    return []


def _field_path(location: Any) -> str:
    """Drops the leading part that says where in the request it is: ``body.ttl_seconds`` is ``ttl_seconds``."""
    parts = [str(part) for part in location] if isinstance(location, list) else str(location or "").split(".")
    if len(parts) > 1 and parts[0] in ("body", "query", "path", "header"):
        parts = parts[1:]
    return ".".join(parts)
