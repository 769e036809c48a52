# Made from ../_async/ports.py by tools/unasync.py. Change that file, then run make gen.
"""Published ports of sandboxes."""

from __future__ import annotations

from typing import Optional

from .. import _ports as calls
from .._pages import Page
from .._schemas import PortAccess, PortLink, PublishedPort
from .requester import Requester


class Ports:
    """The published ports of a sandbox; ``ref`` is its id or name.

    A sandbox or a port that is not there raises NotFoundError, a change of a sandbox that has ended EndedError.
    """

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def list(self, ref: str, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[PublishedPort]:
        """Lists the published ports, by number."""
        return Page(self._requester, calls.list_ports(ref), limit, cursor)

    def publish(self, ref: str, port: int, *, access: Optional[PortAccess] = None) -> PublishedPort:
        """Gives a port a URL of its own, or changes the access of a port that has one; a change cuts off all visitors.

        ``access`` is ``public`` when left out. Raises ValidationError for a port outside 1 to 65535 and for 49983,
        which the agent uses, and an error of code ``quota_exceeded`` for a 33rd port.
        """
        return self._requester.perform(calls.publish(ref, port, access))

    def unpublish(self, ref: str, port: int) -> None:
        """Unpublishes a port: its URL and all links to it stop working at once, and open connections are cut off."""
        self._requester.perform(calls.unpublish(ref, port))

    def rotate(self, ref: str, port: int) -> PublishedPort:
        """Gives a published port another URL.

        The old URL and all links to it stop working at once, and open connections are cut off.
        """
        return self._requester.perform(calls.rotate(ref, port))

    def create_link(self, ref: str, port: int, *, expires_in_seconds: Optional[int] = None) -> PortLink:
        """Makes a signed link to a private port.

        It works for ``expires_in_seconds``, 60 to 604800 (a week); when left out for 3600, or less where the client's
        token expires before. Raises ValidationError for a lifetime out of range, AuthError when the link would outlive
        the client's own token, and ConflictError for a public port.
        """
        return self._requester.perform(calls.create_link(ref, port, expires_in_seconds))
