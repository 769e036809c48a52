"""API tokens and SSH keys."""

from ._async.ssh_keys import AsyncSSHKeys
from ._async.tokens import AsyncTokens
from ._sync.ssh_keys import SSHKeys
from ._sync.tokens import Tokens

__all__ = [
    "AsyncSSHKeys",
    "AsyncTokens",
    "SSHKeys",
    "Tokens",
]
