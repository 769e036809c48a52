"""How a workspace signs in to container registries, for both clients."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ._calls import Call, Listing, _body, _into, _nothing, _segment, listing
from ._schemas import Registry


def _path(registry_id: str) -> str:
    return f"/v1/registries/{_segment(registry_id)}"


def registry_body(
    name: Optional[str],
    server: Optional[str],
    username: Optional[str],
    password: Optional[str],
    email: Optional[str],
    enabled: Optional[bool],
    verify: Optional[bool],
) -> Dict[str, Any]:
    return _body(name=name, server=server, username=username, password=password, email=email, enabled=enabled, verify=verify)


def create(body: Dict[str, Any]) -> Call[Registry]:
    return Call("POST", "/v1/registries", _into(Registry), repeatable=False, json=body)


def list_all() -> Listing[Registry]:
    return listing(Registry, "/v1/registries")


def get(registry_id: str) -> Call[Registry]:
    return Call("GET", _path(registry_id), _into(Registry), repeatable=True)


def update(registry_id: str, body: Dict[str, Any]) -> Call[Registry]:
    return Call("PATCH", _path(registry_id), _into(Registry), repeatable=True, json=body)


def delete(registry_id: str) -> Call[None]:
    return Call("DELETE", _path(registry_id), _nothing, repeatable=False)
