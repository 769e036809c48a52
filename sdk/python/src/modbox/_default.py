"""The clients that sandboxes use when a program makes none: one for the settings of the environment."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, AsyncGenerator, Dict, MutableMapping, Optional, Tuple

if TYPE_CHECKING:
    from ._async.client import AsyncModbox
    from ._sync.client import Modbox

#: MODBOX_URL and MODBOX_API_TOKEN.
_Settings = Tuple[Optional[str], Optional[str]]

_lock = threading.Lock()
_clients: Dict[_Settings, Modbox] = {}
#: The connections of a client for asyncio belong to one event loop.
_async_clients: MutableMapping[
    asyncio.AbstractEventLoop, Dict[_Settings, Tuple[AsyncModbox, AsyncGenerator[None, None]]]
] = weakref.WeakKeyDictionary()


def _settings() -> _Settings:
    return os.environ.get("MODBOX_URL"), os.environ.get("MODBOX_API_TOKEN")


def default_client() -> Modbox:
    """The client of MODBOX_URL and MODBOX_API_TOKEN, which the whole program shares."""
    from ._sync.client import Modbox

    settings = _settings()
    with _lock:
        if settings not in _clients:
            _clients[settings] = Modbox()
        return _clients[settings]


def default_async_client() -> AsyncModbox:
    """The client of MODBOX_URL and MODBOX_API_TOKEN, which all tasks of the running event loop share."""
    from ._async.client import AsyncModbox

    clients = _async_clients.setdefault(asyncio.get_running_loop(), {})
    settings = _settings()
    if settings not in clients:
        client = AsyncModbox()
        closing = _close_at_end(client, clients)
        begun: Any = closing.__anext__()
        try:
            begun.send(None)  # to its yield: only a generator that has begun is closed
        except StopIteration:
            pass
        clients[settings] = client, closing
    return clients[settings][0]


async def _close_at_end(
    client: AsyncModbox, clients: Dict[_Settings, Tuple[AsyncModbox, AsyncGenerator[None, None]]]
) -> AsyncGenerator[None, None]:
    """Closes the client when asyncio.run ends, which closes the generators of its loop."""
    try:
        yield
    finally:
        clients.clear()
        await client.close()
