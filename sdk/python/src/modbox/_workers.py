"""The workers of a server, for both clients."""

from __future__ import annotations

from typing import Any, Dict

from ._calls import Call, Listing, _into, _nothing, _query, _segment, listing
from ._schemas import Worker


def _path(worker: str) -> str:
    return f"/v1/workers/{_segment(worker)}"


def list_all() -> Listing[Worker]:
    return listing(Worker, "/v1/workers")


def get(worker: str) -> Call[Worker]:
    return Call("GET", _path(worker), _into(Worker), repeatable=True)


def update(worker: str, body: Dict[str, Any]) -> Call[Worker]:
    return Call("PATCH", _path(worker), _into(Worker), repeatable=True, json=body)


def delete(worker: str, force: bool) -> Call[None]:
    return Call("DELETE", _query(_path(worker), force=force or None), _nothing, repeatable=False)
