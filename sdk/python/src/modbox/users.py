"""The users of an installation, for both clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Dict, Optional

from ._calls import Call, Listing, _body, _into, _load, _nothing, _segment, listing
from ._pages import AsyncPages, Page
from .models import _optional_time, _time

if TYPE_CHECKING:
    from . import aio, client


@dataclass(frozen=True)
class User:
    """Somebody who signs in."""

    id: str
    name: str
    created_at: datetime = _time()
    email: str = ""
    #: Looks after the installation.
    administrator: bool = False
    #: Its own.
    workspace_id: str = ""
    #: None unless it is disabled.
    disabled_at: Optional[datetime] = _optional_time()


@dataclass(frozen=True)
class NewUser(User):
    """A user just made.

    ``code``, which is shown only now, is what it chooses its password by, see
    ``ModboxClient.accept_invitation``; None when it has one.
    """

    code: Optional[str] = field(default=None, repr=False)


def _path(user: str, call: str = "") -> str:
    return f"/v1/users/{_segment(user)}{call}"


def create(body: Dict[str, Any]) -> Call[NewUser]:
    return Call("POST", "/v1/users", _into(NewUser), repeatable=False, json=body)


def list_all() -> Listing[User]:
    return listing(User, "/v1/users")


def update(user: str, body: Dict[str, Any]) -> Call[User]:
    return Call("PATCH", _path(user), _into(User), repeatable=True, json=body)


def delete(user: str) -> Call[None]:
    return Call("DELETE", _path(user), _nothing, repeatable=False)


def reset_password(user: str) -> Call[str]:
    return Call("POST", _path(user, "/reset"), lambda content: str(_load(content)["code"]), repeatable=False)


class Users:
    """The users of the installation, for administrators; ``user`` is an id, a name or an e-mail address."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def create(
        self,
        name: str,
        *,
        email: Optional[str] = None,
        password: Optional[str] = None,
        administrator: Optional[bool] = None,
    ) -> NewUser:
        """Makes a user, with a workspace of its own. Without a password it chooses one by the code of the answer.

        Never sent twice.
        """
        return self._session.perform(create(_body(name=name, email=email, password=password, administrator=administrator)))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[User]:
        """Lists the users, by name."""
        return Page(self._session, list_all(), limit, cursor)

    def update(self, user: str, *, administrator: Optional[bool] = None, disabled: Optional[bool] = None) -> User:
        """Makes it an administrator or not, or disables it, which ends its sessions and stops its tokens."""
        return self._session.perform(update(user, _body(administrator=administrator, disabled=disabled)))

    def delete(self, user: str) -> None:
        """Deletes a user with its tokens, and the workspaces that it alone is in."""
        self._session.perform(delete(user))

    def reset_password(self, user: str) -> str:
        """Returns a code by which a user chooses a new password; the old one works until then."""
        return self._session.perform(reset_password(user))


class AsyncUsers:
    """The users of the installation, for administrators; ``user`` is an id, a name or an e-mail address."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def create(
        self,
        name: str,
        *,
        email: Optional[str] = None,
        password: Optional[str] = None,
        administrator: Optional[bool] = None,
    ) -> NewUser:
        """Makes a user, with a workspace of its own. Without a password it chooses one by the code of the answer.

        Never sent twice.
        """
        return await self._session.perform(create(_body(name=name, email=email, password=password, administrator=administrator)))

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[User]:
        """Lists the users, by name."""
        return AsyncPages(self._session, list_all(), limit, cursor)

    async def update(self, user: str, *, administrator: Optional[bool] = None, disabled: Optional[bool] = None) -> User:
        """Makes it an administrator or not, or disables it, which ends its sessions and stops its tokens."""
        return await self._session.perform(update(user, _body(administrator=administrator, disabled=disabled)))

    async def delete(self, user: str) -> None:
        """Deletes a user with its tokens, and the workspaces that it alone is in."""
        await self._session.perform(delete(user))

    async def reset_password(self, user: str) -> str:
        """Returns a code by which a user chooses a new password; the old one works until then."""
        return await self._session.perform(reset_password(user))
