"""How a workspace signs in to container registries, for both clients."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Dict, Optional

from ._calls import Call, Listing, _body, _into, _nothing, _segment, listing
from ._pages import AsyncPages, Page
from .models import _time

if TYPE_CHECKING:
    from . import aio, client


@dataclass(frozen=True)
class Registry:
    """How the workspace signs in to a container registry, without the password."""

    id: str
    name: str
    #: Its host, such as ``ghcr.io``.
    server: str
    username: str
    created_at: datetime = _time()
    updated_at: datetime = _time()
    email: Optional[str] = None
    #: False: images are pulled without it.
    enabled: bool = True


def _path(registry_id: str) -> str:
    return f"/v1/registries/{_segment(registry_id)}"


def _fields(
    name: Optional[str],
    server: Optional[str],
    username: Optional[str],
    password: Optional[str],
    email: Optional[str],
    enabled: Optional[bool],
    verify: Optional[bool],
) -> Dict[str, Any]:
    return _body(name=name, server=server, username=username, password=password, email=email, enabled=enabled, verify=verify)


def create(body: Dict[str, Any]) -> Call[Registry]:
    return Call("POST", "/v1/registries", _into(Registry), repeatable=False, json=body)


def list_all() -> Listing[Registry]:
    return listing(Registry, "/v1/registries")


def get(registry_id: str) -> Call[Registry]:
    return Call("GET", _path(registry_id), _into(Registry), repeatable=True)


def update(registry_id: str, body: Dict[str, Any]) -> Call[Registry]:
    return Call("PATCH", _path(registry_id), _into(Registry), repeatable=True, json=body)


def delete(registry_id: str) -> Call[None]:
    return Call("DELETE", _path(registry_id), _nothing, repeatable=False)


class Registries:
    """The registries of the workspace."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

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
        body = _fields(name, server, username, password, email, enabled, verify)
        return self._session.perform(create(body))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Registry]:
        """Lists them, the oldest first."""
        return Page(self._session, list_all(), limit, cursor)

    def get(self, registry_id: str) -> Registry:
        """Returns one."""
        return self._session.perform(get(registry_id))

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
        """Changes what is given; what is None stays, the password too. ``verify`` is as for create."""
        body = _fields(name, server, username, password, email, enabled, verify)
        return self._session.perform(update(registry_id, body))

    def delete(self, registry_id: str) -> None:
        """Removes a registry: images that need it cannot be pulled any more."""
        self._session.perform(delete(registry_id))


class AsyncRegistries:
    """The registries of the workspace."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def create(
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
        body = _fields(name, server, username, password, email, enabled, verify)
        return await self._session.perform(create(body))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Registry]:
        """Lists them, the oldest first."""
        return AsyncPages(self._session, list_all(), limit, cursor)

    async def get(self, registry_id: str) -> Registry:
        """Returns one."""
        return await self._session.perform(get(registry_id))

    async def update(
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
        """Changes what is given; what is None stays, the password too. ``verify`` is as for create."""
        body = _fields(name, server, username, password, email, enabled, verify)
        return await self._session.perform(update(registry_id, body))

    async def delete(self, registry_id: str) -> None:
        """Removes a registry: images that need it cannot be pulled any more."""
        await self._session.perform(delete(registry_id))
