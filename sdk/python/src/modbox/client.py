"""The client for programs that wait for each call."""

from ._sync.client import ModboxClient
from ._sync.sandboxes import Sandboxes

__all__ = ["ModboxClient", "Sandboxes"]
