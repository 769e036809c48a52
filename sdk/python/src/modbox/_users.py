"""The users of an installation, for both clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, Optional

from ._calls import Call, Listing, _into, _load, _nothing, _segment, listing
from .models import _optional_time, _time


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
