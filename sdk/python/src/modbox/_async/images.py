"""Images."""

from __future__ import annotations

from typing import TYPE_CHECKING, AsyncGenerator, Optional, Sequence

from .. import _images as calls
from .._pages import AsyncPages
from .._schemas import AptPackageChecks, BuildImageOptions, Image, PrunedImages, Runtime, SandboxImage, SandboxImageChanges, SandboxImageOptions
from ..builds import BuildEvent, Files, ProgressReader, PullEvent, build, build_events, pull_events
from .requester import AsyncRequester

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncImages:
    """The images that sandboxes can be made from."""

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Image]:
        """Lists them: the built-in ones, the default one first, and then the others, by name."""
        return AsyncPages(self._requester, calls.list_all(), limit, cursor)

    async def get(self, image: str) -> Image:
        """Returns an image with its layers, by its id or a reference."""
        return await self._requester.perform(calls.get(image))

    def runtimes(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Runtime]:
        """Lists the built-in images by their short names. One that is not built is built by its first use."""
        return AsyncPages(self._requester, calls.runtimes(), limit, cursor)

    async def validate_apt_packages(self, packages: Sequence[str], *, image: Optional[str] = None) -> AptPackageChecks:
        """Checks whether Debian packages, written as for a create, can be installed in an image, by default modbox/base.

        May take some seconds.
        """
        return await self._requester.perform(calls.validate_apt_packages(packages, image))

    async def pull(self, image: str) -> AsyncGenerator[PullEvent, None]:
        """Has the server pull what it lacks of an image; creating a sandbox does so by itself.

        The last event is ``done``; otherwise it raises, with the registry's words. When the
        iterator is closed the pull goes on only if others wait for it.
        """
        chunks = self._requester.stream(calls.pull(image))
        reader = ProgressReader(f"pull {image}")
        try:
            async for chunk in chunks:
                for event in pull_events(reader.feed(chunk)):
                    yield event
        finally:
            await chunks.aclose()
        reader.end()

    async def push(self, image: str, *, to: Optional[str] = None) -> AsyncGenerator[PullEvent, None]:
        """Sends an image that the workspace has built to a registry: to another reference, or to what its name says.

        Ends as a pull does.
        """
        chunks = self._requester.stream(calls.push(image, to))
        reader = ProgressReader(f"push {image}")
        try:
            async for chunk in chunks:
                for event in pull_events(reader.feed(chunk)):
                    yield event
        finally:
            await chunks.aclose()
        reader.end()

    async def build(self, files: Files, **options: Unpack[BuildImageOptions]) -> AsyncGenerator[BuildEvent, None]:
        """Builds an image from a Dockerfile and the files beside it, a tar, plain or compressed, or chunks of it.

        It is described by the members of BuildImageOptions. The last event is ``done``; an
        instruction that fails raises BuildError. Closing the iterator ends the build. Never sent twice.
        """
        chunks = self._requester.stream(build(files, options))
        reader = ProgressReader("build")
        try:
            async for chunk in chunks:
                for event in build_events(reader.feed(chunk)):
                    yield event
        finally:
            await chunks.aclose()
        reader.end()

    async def delete(self, image: str) -> None:
        """Removes an image, named by its id or a reference, that the workspace has built or has by signing in to a registry.

        What was made from it goes on. One that is for all workspaces only administrators may
        remove. Never sent twice.
        """
        await self._requester.perform(calls.delete(image))

    async def prune(self, *, all: Optional[bool] = None, dry_run: Optional[bool] = None) -> PrunedImages:
        """Frees the disk of what nothing uses of the workspace: images that were removed or built anew, and what builds left.

        ``all``, for administrators of the installation, is that of all workspaces, and pulled
        images that nobody uses. With ``dry_run`` nothing is removed.
        """
        return await self._requester.perform(calls.prune(all, dry_run))


class AsyncSandboxImages:
    """The catalogue: the built-in images and the workspace's own."""

    def __init__(self, requester: AsyncRequester) -> None:
        self._requester = requester

    async def create(self, name: str, image: str, **options: Unpack[SandboxImageOptions]) -> SandboxImage:
        """Adds an image, described by the members of SandboxImageOptions; nothing is pulled yet. Never sent twice."""
        return await self._requester.perform(calls.create_sandbox_image(name, image, options))

    def list(
        self, *, enabled_only: Optional[bool] = None, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> AsyncPages[SandboxImage]:
        """Lists them: the built-in ones, the server's default first, and the workspace's own, the oldest first."""
        return AsyncPages(self._requester, calls.list_sandbox_images(enabled_only), limit, cursor)

    async def get(self, image_id: str) -> SandboxImage:
        """Returns one."""
        return await self._requester.perform(calls.get_sandbox_image(image_id))

    async def update(self, image_id: str, **options: Unpack[SandboxImageChanges]) -> SandboxImage:
        """Changes the given settings; sandboxes that exist stay as they are.

        Of a built-in one an administrator may change ``enabled``.
        """
        return await self._requester.perform(calls.update_sandbox_image(image_id, options))

    async def delete(self, image_id: str) -> None:
        """Removes one of the workspace's own; sandboxes that were made from it go on."""
        await self._requester.perform(calls.delete_sandbox_image(image_id))
