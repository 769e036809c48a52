# Made from ../_async/requester.py by tools/unasync.py. Change that file, then run make gen.
"""How calls are performed: tokens, tries, answers."""

from __future__ import annotations

import time
import itertools
from typing import Any, Generator, TypeVar

from .. import terminals
from .._calls import Call
from .._session import Attempt, Settings, parse, read
from .._signin import Renewing, Credentials
from ..errors import ModboxError
from ..models import UserSession
from ..transport import Response, Transport, Request

T = TypeVar("T")


class Requester:
    """Performs the calls of a client, in whose name it makes them."""

    def __init__(self, settings: Settings, transport: Transport, renewing: Renewing) -> None:
        self._settings = settings
        self._transport = transport
        self._renewing = renewing

    @property
    def credentials(self) -> Credentials:
        return self._renewing.credentials

    def address(self, path: str) -> str:
        return self._settings.base_url + path

    def perform(self, call: Call[T]) -> T:
        request = self._request(call)

        def once() -> bytes:
            response = self._transport.send(request)
            if call.on_status is not None:
                call.on_status(response.status)
            return read(response)

        return parse(call, self._try(call, once))

    def renew(self) -> UserSession:
        return self._renewing.renew(self.perform)

    def connect(self, attach: terminals.Attach) -> terminals.Session:
        request = self._request(attach.call)
        return self._try(attach.call, lambda: terminals.connect(attach, request, self._settings.ssl_context))

    def stream(self, call: Call[bytes]) -> Generator[bytes, None, None]:
        """Yields the answer's body as it comes; ending the iteration closes the connection."""
        request = self._request(call)

        def once() -> Response:
            response = self._transport.send(request)
            if not 200 <= response.status < 300:
                read(response)  # raises
            return response

        response = self._try(call, once)
        try:
            for chunk in response.chunks():
                yield chunk
        finally:
            response.close()

    def _request(self, call: Call[Any]) -> Request:
        # Not within the tries: it may renew a session, which is never done twice.
        return self._settings.request(call, None if call.anonymous else self._renewing.bearer(self.perform))

    def _try(self, call: Call[Any], once: Attempt[T]) -> T:
        for attempt in itertools.count():
            try:
                return once()
            except ModboxError as err:
                delay = self._settings.retry_delay(call, attempt, err)
                if delay is None:
                    raise
                time.sleep(delay)
        raise AssertionError("count has no end")

    def close(self) -> None:
        self._transport.close()
