"""The common parts of the two clients: settings, building requests, reading answers, when to try again."""

from __future__ import annotations

import json
import os
import random
import re
import ssl
from dataclasses import dataclass
from typing import Any, Awaitable, Callable, Dict, Optional, TypeVar

from ._calls import DEFAULT, Call
from .errors import ModboxError, error_from_response, new_error
from .transport import AsyncResponse, Request, Response

T = TypeVar("T")

#: The errors after which a request that may be repeated is repeated.
Attempt = Callable[[], T]
AsyncAttempt = Callable[[], Awaitable[T]]

#: The settings of a client that are not given.
DEFAULTS: Dict[str, Any] = {"base_url": None, "workspace_id": None, "timeout": 60.0, "max_retries": 3, "ssl_context": None}

_FIRST_DELAY_SECONDS = 0.1
_MAX_DELAY_SECONDS = 2.0
_MAX_RETRY_AFTER_SECONDS = 30.0


@dataclass(frozen=True)
class Settings:
    """How a client was made."""

    base_url: str
    workspace_id: Optional[str]
    timeout: float
    max_retries: int
    ssl_context: Optional[ssl.SSLContext]

    @staticmethod
    def of(
        base_url: Optional[str], workspace_id: Optional[str], timeout: float, max_retries: int, ssl_context: Optional[ssl.SSLContext]
    ) -> "Settings":
        base_url = base_url or os.environ.get("MODBOX_URL") or "http://127.0.0.1:7070"
        if not re.match(r"https?://[^/]", base_url, re.IGNORECASE):
            hint = "" if "://" in base_url else f"; write http://{base_url} or https://{base_url}"
            raise new_error("invalid", f'base_url (MODBOX_URL) "{base_url}" is not an http or https URL{hint}')
        return Settings(base_url.rstrip("/"), workspace_id, timeout, max_retries, ssl_context)

    def request(self, call: "Call[T]", token: Optional[str]) -> Request:
        headers = {"accept": "application/json, */*", **call.headers}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if self.workspace_id and not call.anonymous:
            headers["x-workspace-id"] = self.workspace_id
        content = call.content
        if call.json is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(call.json).encode()
        timeout = self.timeout if call.timeout is DEFAULT else call.timeout
        return Request(call.method, self.base_url + call.path, headers, content, timeout)

    def retry_delay(self, call: "Call[T]", attempt: int, err: ModboxError) -> Optional[float]:
        """Returns the seconds until the next try, None for no other one. Attempts count from 0.

        Written here because a library would be the only thing this package depends on.
        """
        if not call.repeatable or attempt >= self.max_retries or err.code not in ("connection", "unavailable"):
            return None
        if err.retry_after > 0:
            return min(err.retry_after, _MAX_RETRY_AFTER_SECONDS)
        return random.uniform(0, min(_FIRST_DELAY_SECONDS * 2**attempt, _MAX_DELAY_SECONDS))


def read(response: Response) -> bytes:
    """Reads the whole answer; raises what it says when it is not a success."""
    try:
        content = b"".join(response.chunks())
    finally:
        response.close()
    if not 200 <= response.status < 300:
        raise error_from_response(response.status, response.headers, content)
    return content


async def read_async(response: AsyncResponse) -> bytes:
    """As read."""
    try:
        content = b"".join([chunk async for chunk in response.chunks()])
    finally:
        await response.close()
    if not 200 <= response.status < 300:
        raise error_from_response(response.status, response.headers, content)
    return content


def parse(call: "Call[T]", content: bytes) -> T:
    """Reads the answer's meaning."""
    try:
        return call.parse(content)
    except (ValueError, KeyError, TypeError) as err:
        if isinstance(err, ModboxError):
            raise
        raise new_error("bad_response", f"{call.method} {call.path.split('?')[0]}: the answer makes no sense: {err!r}") from err
