"""Images."""

from ._async.images import AsyncImages, AsyncSandboxImages
from ._schemas import SandboxImage
from ._sync.images import Images, SandboxImages

__all__ = [
    "AsyncImages",
    "AsyncSandboxImages",
    "Images",
    "SandboxImage",
    "SandboxImages",
]
