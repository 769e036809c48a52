"""The users of an installation, for both clients."""

from __future__ import annotations

from typing import Any, Dict

from ._calls import Call, Listing, _into, _load, _nothing, _segment, listing
from ._schemas import NewUser, User


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
