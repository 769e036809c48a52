# Made from ../_async/registries.py by tools/unasync.py. Change that file, then run make gen.
"""How a workspace signs in to container registries."""

from __future__ import annotations

from typing import Optional

from .. import _registries as calls
from .._pages import Page
from .._schemas import Registry
from .requester import Requester


class Registries:
    """The registries of the workspace."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    def create(
        self,
        *,
        name: str,
        server: str,
        username: str,
        password: str,
        email: Optional[str] = None,
        enabled: Optional[bool] = None,
        verify: Optional[bool] = None,
    ) -> Registry:
        """Adds a registry: images of its host are pulled with it from then on. Never sent twice.

        With ``verify`` the registry is asked first whether it accepts them, and nothing is
        recorded when it does not: ValidationError names ``password``.
        """
        body = calls.registry_body(name, server, username, password, email, enabled, verify)
        return self._requester.perform(calls.create(body))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Registry]:
        """Lists them, the oldest first."""
        return Page(self._requester, calls.list_all(), limit, cursor)

    def get(self, registry_id: str) -> Registry:
        """Returns one."""
        return self._requester.perform(calls.get(registry_id))

    def update(
        self,
        registry_id: str,
        *,
        name: Optional[str] = None,
        server: Optional[str] = None,
        username: Optional[str] = None,
        password: Optional[str] = None,
        email: Optional[str] = None,
        enabled: Optional[bool] = None,
        verify: Optional[bool] = None,
    ) -> Registry:
        """Changes the given settings; a setting that is None stays, the password too. ``verify`` is as for create."""
        body = calls.registry_body(name, server, username, password, email, enabled, verify)
        return self._requester.perform(calls.update(registry_id, body))

    def delete(self, registry_id: str) -> None:
        """Removes a registry: images that need it cannot be pulled any more."""
        self._requester.perform(calls.delete(registry_id))
