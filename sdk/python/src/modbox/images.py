"""Images, for both clients."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, AsyncGenerator, Generator, Iterable, Optional, Sequence, Union

from ._calls import Call, Listing, _body, _into, _nothing, _raw, _segment, known, listing
from ._pages import AsyncPages, Page
from .builds import BuildEvent, BuildImageOptions, Files, ProgressReader, PullEvent, build, build_events, pull_events
from .models import Image, Runtime, _time
from .options import SandboxImageChanges, SandboxImageOptions
from .records import DependencyChecks, PrunedImages

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import aio, client


@dataclass(frozen=True)
class SandboxImage:
    """An image of the workspace's catalogue, with the defaults of the sandboxes that are made from it by its ``id``."""

    id: str
    name: str
    image: str
    tag: str
    created_at: datetime = _time()
    updated_at: datetime = _time()
    description: Optional[str] = None
    #: In every workspace.
    builtin: bool = False
    enabled: bool = True
    #: Used when a request names no image.
    is_default: bool = False
    #: Limit of its sandboxes in MiB.
    memory_mb: int = 0
    readiness_port: Optional[int] = None
    ttl_seconds: Optional[int] = None
    #: What it is pulled with; None: whichever the workspace has for the host.
    registry_id: Optional[str] = None
    registry_name: Optional[str] = None
    #: None for one that every workspace has.
    workspace_id: Optional[str] = None


def list_all() -> Listing[Image]:
    return listing(Image, "/v1/images")


def runtimes() -> Listing[Runtime]:
    return listing(Runtime, "/v1/runtimes")


def validate_dependencies(dependencies: Sequence[str], image: Optional[str]) -> Call[DependencyChecks]:
    body = _body(dependencies=list(dependencies), image=image)
    return Call("POST", "/v1/dependencies/validate", _into(DependencyChecks), repeatable=True, json=body, timeout=None)


def pull(image: str) -> Call[bytes]:
    return Call("POST", "/v1/images/pull", _raw, repeatable=True, json={"image": image}, timeout=None)


def push(image: str, to: Optional[str]) -> Call[bytes]:
    return Call("POST", "/v1/images/push", _raw, repeatable=False, json=_body(image=image, to=to), timeout=None)


def delete(image: str) -> Call[None]:
    return Call("DELETE", f"/v1/images/{_segment(image)}", _nothing, repeatable=False)


def prune(all_workspaces: Optional[bool], dry_run: Optional[bool]) -> Call[PrunedImages]:
    body = _body(all=all_workspaces, dry_run=dry_run)
    return Call("POST", "/v1/images/prune", _into(PrunedImages), repeatable=True, json=body, timeout=None)


def _path(image_id: str) -> str:
    return f"/v1/sandbox-images/{_segment(image_id)}"


def create_sandbox_image(name: str, image: str, o: SandboxImageOptions) -> Call[SandboxImage]:
    known(SandboxImageOptions, o)
    return Call("POST", "/v1/sandbox-images", _into(SandboxImage), repeatable=False, json=_body(name=name, image=image, **o))


def list_sandbox_images(enabled_only: Optional[bool]) -> Listing[SandboxImage]:
    return listing(SandboxImage, "/v1/sandbox-images", enabled_only=enabled_only)


def get_sandbox_image(image_id: str) -> Call[SandboxImage]:
    return Call("GET", _path(image_id), _into(SandboxImage), repeatable=True)


def update_sandbox_image(image_id: str, o: SandboxImageChanges) -> Call[SandboxImage]:
    known(SandboxImageChanges, o)
    return Call("PATCH", _path(image_id), _into(SandboxImage), repeatable=True, json=_body(**o))


def delete_sandbox_image(image_id: str) -> Call[None]:
    return Call("DELETE", _path(image_id), _nothing, repeatable=False)


class Images:
    """The images that sandboxes can be made from."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Image]:
        """Lists them: the built-in ones, the default one first, and then the others, by name."""
        return Page(self._session, list_all(), limit, cursor)

    def runtimes(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Runtime]:
        """Lists the built-in images by their short names. One that is not built is built by its first use."""
        return Page(self._session, runtimes(), limit, cursor)

    def validate_dependencies(self, dependencies: Sequence[str], *, image: Optional[str] = None) -> DependencyChecks:
        """Checks whether Debian packages, written as for a create, can be installed in an image, by default modbox/base.

        May take some seconds.
        """
        return self._session.perform(validate_dependencies(dependencies, image))

    def pull(self, image: str) -> Generator[PullEvent, None, None]:
        """Has the server pull what it lacks of an image; creating a sandbox does so by itself.

        The last event is ``done``; otherwise it raises, with the registry's words. When the
        iterator is closed the pull goes on only if others wait for it.
        """
        chunks = self._session.stream(pull(image))
        reader = ProgressReader(f"pull {image}")
        try:
            for chunk in chunks:
                yield from pull_events(reader.feed(chunk))
        finally:
            chunks.close()
        reader.end()

    def push(self, image: str, *, to: Optional[str] = None) -> Generator[PullEvent, None, None]:
        """Sends an image that the workspace has built to a registry: to another reference, or to what its name says.

        Ends as a pull does.
        """
        chunks = self._session.stream(push(image, to))
        reader = ProgressReader(f"push {image}")
        try:
            for chunk in chunks:
                yield from pull_events(reader.feed(chunk))
        finally:
            chunks.close()
        reader.end()

    def build(self, files: Union[bytes, Iterable[bytes]], **options: Unpack[BuildImageOptions]) -> Generator[BuildEvent, None, None]:
        """Builds an image from a Dockerfile and the files beside it, a tar, plain or compressed, or chunks of it.

        It is described by the members of BuildImageOptions. The last event is ``done``; an
        instruction that fails raises BuildError. Closing the iterator ends the build. Never sent twice.
        """
        chunks = self._session.stream(build(files, options))
        reader = ProgressReader("build")
        try:
            for chunk in chunks:
                yield from build_events(reader.feed(chunk))
        finally:
            chunks.close()
        reader.end()

    def delete(self, image: str) -> None:
        """Removes an image, named by its id or a reference, that the workspace has built or has by signing in to a registry.

        What was made from it goes on. One that is for all workspaces only administrators may
        remove. Never sent twice.
        """
        self._session.perform(delete(image))

    def prune(self, *, all: Optional[bool] = None, dry_run: Optional[bool] = None) -> PrunedImages:
        """Frees the disk of what nothing uses of the workspace: images that were removed or built anew, and what builds left.

        ``all``, for administrators of the installation, is that of all workspaces, and pulled
        images that nobody uses. With ``dry_run`` nothing is removed.
        """
        return self._session.perform(prune(all, dry_run))


class AsyncImages:
    """The images that sandboxes can be made from."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    def list(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Image]:
        """Lists them: the built-in ones, the default one first, and then the others, by name."""
        return AsyncPages(self._session, list_all(), limit, cursor)

    def runtimes(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Runtime]:
        """Lists the built-in images by their short names. One that is not built is built by its first use."""
        return AsyncPages(self._session, runtimes(), limit, cursor)

    async def validate_dependencies(self, dependencies: Sequence[str], *, image: Optional[str] = None) -> DependencyChecks:
        """Checks whether Debian packages, written as for a create, can be installed in an image, by default modbox/base.

        May take some seconds.
        """
        return await self._session.perform(validate_dependencies(dependencies, image))

    async def pull(self, image: str) -> AsyncGenerator[PullEvent, None]:
        """Has the server pull what it lacks of an image; creating a sandbox does so by itself.

        The last event is ``done``; otherwise it raises, with the registry's words. When the
        iterator is closed the pull goes on only if others wait for it.
        """
        chunks = self._session.stream(pull(image))
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
        chunks = self._session.stream(push(image, to))
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
        chunks = self._session.stream(build(files, options))
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
        await self._session.perform(delete(image))

    async def prune(self, *, all: Optional[bool] = None, dry_run: Optional[bool] = None) -> PrunedImages:
        """Frees the disk of what nothing uses of the workspace: images that were removed or built anew, and what builds left.

        ``all``, for administrators of the installation, is that of all workspaces, and pulled
        images that nobody uses. With ``dry_run`` nothing is removed.
        """
        return await self._session.perform(prune(all, dry_run))


class SandboxImages:
    """The catalogue: the built-in images and the workspace's own."""

    def __init__(self, session: client._Session) -> None:
        self._session = session

    def create(self, name: str, image: str, **options: Unpack[SandboxImageOptions]) -> SandboxImage:
        """Adds an image, described by the members of SandboxImageOptions; nothing is pulled yet. Never sent twice."""
        return self._session.perform(create_sandbox_image(name, image, options))

    def list(
        self, *, enabled_only: Optional[bool] = None, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> Page[SandboxImage]:
        """Lists them: the built-in ones, the server's default first, and the workspace's own, the oldest first."""
        return Page(self._session, list_sandbox_images(enabled_only), limit, cursor)

    def get(self, image_id: str) -> SandboxImage:
        """Returns one."""
        return self._session.perform(get_sandbox_image(image_id))

    def update(self, image_id: str, **options: Unpack[SandboxImageChanges]) -> SandboxImage:
        """Changes what is given; sandboxes that exist stay as they are.

        Of a built-in one an administrator may change ``enabled``.
        """
        return self._session.perform(update_sandbox_image(image_id, options))

    def delete(self, image_id: str) -> None:
        """Removes one of the workspace's own; sandboxes that were made from it go on."""
        self._session.perform(delete_sandbox_image(image_id))


class AsyncSandboxImages:
    """The catalogue: the built-in images and the workspace's own."""

    def __init__(self, session: aio._Session) -> None:
        self._session = session

    async def create(self, name: str, image: str, **options: Unpack[SandboxImageOptions]) -> SandboxImage:
        """Adds an image, described by the members of SandboxImageOptions; nothing is pulled yet. Never sent twice."""
        return await self._session.perform(create_sandbox_image(name, image, options))

    def list(
        self, *, enabled_only: Optional[bool] = None, limit: Optional[int] = None, cursor: Optional[str] = None,
    ) -> AsyncPages[SandboxImage]:
        """Lists them: the built-in ones, the server's default first, and the workspace's own, the oldest first."""
        return AsyncPages(self._session, list_sandbox_images(enabled_only), limit, cursor)

    async def get(self, image_id: str) -> SandboxImage:
        """Returns one."""
        return await self._session.perform(get_sandbox_image(image_id))

    async def update(self, image_id: str, **options: Unpack[SandboxImageChanges]) -> SandboxImage:
        """Changes what is given; sandboxes that exist stay as they are.

        Of a built-in one an administrator may change ``enabled``.
        """
        return await self._session.perform(update_sandbox_image(image_id, options))

    async def delete(self, image_id: str) -> None:
        """Removes one of the workspace's own; sandboxes that were made from it go on."""
        await self._session.perform(delete_sandbox_image(image_id))
