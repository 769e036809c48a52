"""Images."""

from ._async.images import AsyncImages, AsyncSandboxImages
from ._images import SandboxImage
from ._sync.images import Images, SandboxImages

__all__ = [
    "AsyncImages",
    "AsyncSandboxImages",
    "Images",
    "SandboxImage",
    "SandboxImages",
]
