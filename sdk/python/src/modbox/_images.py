"""Images, for both clients."""

from __future__ import annotations

from typing import Optional, Sequence

from ._calls import Call, Listing, _body, _into, _nothing, _raw, _segment, known, listing
from ._schemas import AptPackageChecks, Image, PrunedImages, Runtime, SandboxImage, SandboxImageChanges, SandboxImageOptions


def list_all() -> Listing[Image]:
    return listing(Image, "/v1/images")


def get(image: str) -> Call[Image]:
    return Call("GET", f"/v1/images/{_segment(image)}", _into(Image), repeatable=True)


def runtimes() -> Listing[Runtime]:
    return listing(Runtime, "/v1/runtimes")


def validate_apt_packages(packages: Sequence[str], image: Optional[str]) -> Call[AptPackageChecks]:
    body = _body(apt_packages=list(packages), image=image)
    return Call("POST", "/v1/apt-packages/validate", _into(AptPackageChecks), repeatable=True, json=body, timeout=None)


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
