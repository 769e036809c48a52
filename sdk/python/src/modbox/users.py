"""The users of an installation."""

from ._async.users import AsyncUsers
from ._schemas import NewUser, User
from ._sync.users import Users

__all__ = [
    "AsyncUsers",
    "NewUser",
    "User",
    "Users",
]
