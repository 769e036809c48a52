"""Published ports of sandboxes, for both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from ._calls import Call, Listing, _body, _into, _nothing, _segment, listing, sandbox_path
from ._pages import AsyncPages, Page
from .models import PortAccess, PortLink, PublishedPort

if TYPE_CHECKING:
    from . import aio, client


def _port_path(ref: str, port: int, call: str = "") -> str:
    return sandbox_path(ref, f"/ports/{_segment(str(port))}{call}")


def list_ports(ref: str) -> Listing[PublishedPort]:
    return listing(PublishedPort, sandbox_path(ref, "/ports"))


def publish(ref: str, port: int, access: Optional[PortAccess]) -> Call[PublishedPort]:
    return Call("PUT", _port_path(ref, port), _into(PublishedPort), repeatable=True, json=_body(access=access))


def remove(ref: str, port: int) -> Call[None]:
    return Call("DELETE", _port_path(ref, port), _nothing, repeatable=False)


def rotate(ref: str, port: int) -> Call[PublishedPort]:
    return Call("POST", _port_path(ref, port, "/rotate"), _into(PublishedPort), repeatable=False)


def create_link(ref: str, port: int, expires_in_seconds: Optional[int]) -> Call[PortLink]:
    body = _body(expires_in_seconds=expires_in_seconds)
    return Call("POST", _port_path(ref, port, "/links"), _into(PortLink), repeatable=False, json=body)


class Ports:
    """The published ports of a sandbox; ``ref`` is its id or name.

    A sandbox or a port that is not there raises NotFoundError, a change of a sandbox that has ended EndedError.
    """

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def list(self, ref: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[PublishedPort]:
        """Lists the published ports, by number."""
        return Page(self._session, list_ports(ref), limit, cursor)

    def publish(self, ref: str, port: int, *, access: Optional[PortAccess] = None) -> PublishedPort:
        """Gives a port a URL of its own, or changes the access of a port that has one; a change cuts off all visitors.

        ``access`` is ``public`` when left out. Raises ValidationError for a port outside 1 to 65535 and for 49983,
        which the agent uses, and an error of code ``quota_exceeded`` for a 33rd port.
        """
        return self._session.perform(publish(ref, port, access))

    def remove(self, ref: str, port: int) -> None:
        """Unpublishes a port: its URL and all links to it stop working at once, and open connections are cut off."""
        self._session.perform(remove(ref, port))

    def rotate(self, ref: str, port: int) -> PublishedPort:
        """Gives a published port another URL.

        The old URL and all links to it stop working at once, and open connections are cut off.
        """
        return self._session.perform(rotate(ref, port))

    def create_link(self, ref: str, port: int, *, expires_in_seconds: Optional[int] = None) -> PortLink:
        """Makes a signed link to a private port.

        It works for ``expires_in_seconds``, 60 to 604800 (a week); when left out for 3600, or less where the client's
        token expires before. Raises ValidationError for a lifetime out of range, AuthError when the link would outlive
        the client's own token, and ConflictError for a public port.
        """
        return self._session.perform(create_link(ref, port, expires_in_seconds))


class AsyncPorts:
    """The published ports of a sandbox; ``ref`` is its id or name.

    A sandbox or a port that is not there raises NotFoundError, a change of a sandbox that has ended EndedError.
    """

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    def list(self, ref: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[PublishedPort]:
        """Lists the published ports, by number."""
        return AsyncPages(self._session, list_ports(ref), limit, cursor)

    async def publish(self, ref: str, port: int, *, access: Optional[PortAccess] = None) -> PublishedPort:
        """Gives a port a URL of its own, or changes the access of a port that has one; a change cuts off all visitors.

        ``access`` is ``public`` when left out. Raises ValidationError for a port outside 1 to 65535 and for 49983,
        which the agent uses, and an error of code ``quota_exceeded`` for a 33rd port.
        """
        return await self._session.perform(publish(ref, port, access))

    async def remove(self, ref: str, port: int) -> None:
        """Unpublishes a port: its URL and all links to it stop working at once, and open connections are cut off."""
        await self._session.perform(remove(ref, port))

    async def rotate(self, ref: str, port: int) -> PublishedPort:
        """Gives a published port another URL.

        The old URL and all links to it stop working at once, and open connections are cut off.
        """
        return await self._session.perform(rotate(ref, port))

    async def create_link(self, ref: str, port: int, *, expires_in_seconds: Optional[int] = None) -> PortLink:
        """Makes a signed link to a private port.

        It works for ``expires_in_seconds``, 60 to 604800 (a week); when left out for 3600, or less where the client's
        token expires before. Raises ValidationError for a lifetime out of range, AuthError when the link would outlive
        the client's own token, and ConflictError for a public port.
        """
        return await self._session.perform(create_link(ref, port, expires_in_seconds))
