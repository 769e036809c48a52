"""How a workspace signs in to container registries."""

from ._async.registries import AsyncRegistries
from ._schemas import Registry
from ._sync.registries import Registries

__all__ = [
    "AsyncRegistries",
    "Registries",
    "Registry",
]
