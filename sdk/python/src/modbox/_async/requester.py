"""How calls are performed: tokens, tries, answers."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, AsyncGenerator, TypeVar

from .. import terminals
from .._calls import Call
from .._session import AsyncAttempt, Settings, parse, read_async
from .._signin import AsyncRenewing, Credentials
from ..errors import ModboxError
from ..models import UserSession
from ..transport import AsyncResponse, AsyncTransport, Request

T = TypeVar("T")


class AsyncRequester:
    """Performs the calls of a client, in whose name it makes them."""

    def __init__(self, settings: Settings, transport: AsyncTransport, renewing: AsyncRenewing) -> None:
        self._settings = settings
        self._transport = transport
        self._renewing = renewing

    @property
    def credentials(self) -> Credentials:
        return self._renewing.credentials

    def address(self, path: str) -> str:
        return self._settings.base_url + path

    async def perform(self, call: Call[T]) -> T:
        request = await self._request(call)

        async def once() -> bytes:
            response = await self._transport.send(request)
            if call.on_status is not None:
                call.on_status(response.status)
            return await read_async(response)

        return parse(call, await self._try(call, once))

    async def renew(self) -> UserSession:
        return await self._renewing.renew(self.perform)

    async def connect(self, attach: terminals.Attach) -> terminals.AsyncSession:
        request = await self._request(attach.call)
        return await self._try(attach.call, lambda: terminals.connect_async(attach, request, self._settings.ssl_context))

    async def stream(self, call: Call[bytes]) -> AsyncGenerator[bytes, None]:
        """Yields the answer's body as it comes; ending the iteration closes the connection."""
        request = await self._request(call)

        async def once() -> AsyncResponse:
            response = await self._transport.send(request)
            if not 200 <= response.status < 300:
                await read_async(response)  # raises
            return response

        response = await self._try(call, once)
        try:
            async for chunk in response.chunks():
                yield chunk
        finally:
            await response.close()

    async def _request(self, call: Call[Any]) -> Request:
        # Not within the tries: it may renew a session, which is never done twice.
        return self._settings.request(call, None if call.anonymous else await self._renewing.bearer(self.perform))

    async def _try(self, call: Call[Any], once: AsyncAttempt[T]) -> T:
        for attempt in itertools.count():
            try:
                return await once()
            except ModboxError as err:
                delay = self._settings.retry_delay(call, attempt, err)
                if delay is None:
                    raise
                await asyncio.sleep(delay)
        raise AssertionError("count has no end")

    async def close(self) -> None:
        await self._transport.close()
