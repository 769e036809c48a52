"""The screens of sandboxes, for both clients."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ._calls import Call, Listing, _body, _into, _items, _nothing, _query, _raw, _segment, listing, sandbox_path
from ._schemas import DesktopScreen, DesktopWindow, Recording


#: A page size with which a page has all windows of a screen.
_ALL_WINDOWS = 1000


def _path(ref: str, call: str = "") -> str:
    return sandbox_path(ref, f"/desktop{call}")


def screen(ref: str) -> Call[DesktopScreen]:
    return Call("GET", _path(ref), _into(DesktopScreen), repeatable=True)


def resize(ref: str, width: int, height: int) -> Call[DesktopScreen]:
    return Call("PATCH", _path(ref), _into(DesktopScreen), repeatable=True, json=_body(width=width, height=height))


def screenshot(
    ref: str, x: Optional[int], y: Optional[int], width: Optional[int], height: Optional[int], pointer: bool
) -> Call[bytes]:
    path = _query(_path(ref, "/screenshot"), x=x, y=y, width=width, height=height, pointer="true" if pointer else None)
    return Call("GET", path, _raw, repeatable=True)


def act(ref: str, actions: Sequence[Mapping[str, Any]]) -> Call[None]:
    return Call("POST", _path(ref, "/actions"), _nothing, repeatable=False, json={"actions": [dict(a) for a in actions]}, timeout=None)


def action(type: str, **members: Any) -> Dict[str, Any]:
    """An action, without members that are None, and with positions as pairs."""
    for name in ("at", "to"):
        if members.get(name) is not None:
            x, y = members[name]
            members[name] = {"x": x, "y": y}
    if members.get("hold") is not None:
        members["hold"] = list(members["hold"])
    return {"type": type, **_body(**members)}


def windows(ref: str) -> Call[List[DesktopWindow]]:
    return Call("GET", _query(_path(ref, "/windows"), limit=_ALL_WINDOWS), _items(DesktopWindow), repeatable=True)


def focus(ref: str, window: str) -> Call[None]:
    return Call("POST", _path(ref, f"/windows/{_segment(window)}/focus"), _nothing, repeatable=False)


def close(ref: str, window: str) -> Call[None]:
    return Call("DELETE", _path(ref, f"/windows/{_segment(window)}"), _nothing, repeatable=False)


def open_target(ref: str, target: str) -> Call[None]:
    return Call("POST", _path(ref, "/open"), _nothing, repeatable=False, json={"target": target})


def launch(ref: str, command: Sequence[str]) -> Call[None]:
    return Call("POST", _path(ref, "/open"), _nothing, repeatable=False, json={"command": list(command)})


def record(
    ref: str, path: Optional[str], fps: Optional[int], max_seconds: Optional[int], max_bytes: Optional[int]
) -> Call[Recording]:
    body = _body(path=path, fps=fps, max_seconds=max_seconds, max_bytes=max_bytes)
    return Call("POST", _path(ref, "/recordings"), _into(Recording), repeatable=False, json=body)


def recordings(ref: str) -> Listing[Recording]:
    return listing(Recording, _path(ref, "/recordings"))


def recording(ref: str, recording_id: str) -> Call[Recording]:
    return Call("GET", _path(ref, f"/recordings/{_segment(recording_id)}"), _into(Recording), repeatable=True)


def stop_recording(ref: str, recording_id: str) -> Call[Recording]:
    return Call("POST", _path(ref, f"/recordings/{_segment(recording_id)}/stop"), _into(Recording), repeatable=True)


def delete_recording(ref: str, recording_id: str) -> Call[None]:
    return Call("DELETE", _path(ref, f"/recordings/{_segment(recording_id)}"), _nothing, repeatable=False)
