"""Published ports of sandboxes, for both clients."""

from __future__ import annotations

from typing import Optional

from ._calls import Call, Listing, _body, _into, _nothing, _segment, listing, sandbox_path
from ._schemas import PortAccess, PortLink, PublishedPort


def _port_path(ref: str, port: int, call: str = "") -> str:
    return sandbox_path(ref, f"/ports/{_segment(str(port))}{call}")


def list_ports(ref: str) -> Listing[PublishedPort]:
    return listing(PublishedPort, sandbox_path(ref, "/ports"))


def publish(ref: str, port: int, access: Optional[PortAccess]) -> Call[PublishedPort]:
    return Call("PUT", _port_path(ref, port), _into(PublishedPort), repeatable=True, json=_body(access=access))


def unpublish(ref: str, port: int) -> Call[None]:
    return Call("DELETE", _port_path(ref, port), _nothing, repeatable=False)


def rotate(ref: str, port: int) -> Call[PublishedPort]:
    return Call("POST", _port_path(ref, port, "/rotate"), _into(PublishedPort), repeatable=False)


def create_link(ref: str, port: int, expires_in_seconds: Optional[int]) -> Call[PortLink]:
    body = _body(expires_in_seconds=expires_in_seconds)
    return Call("POST", _port_path(ref, port, "/links"), _into(PortLink), repeatable=False, json=body)
