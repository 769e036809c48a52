"""API tokens."""

from ._async.tokens import AsyncTokens
from ._sync.tokens import Tokens

__all__ = [
    "AsyncTokens",
    "Tokens",
]
