# Made from ../_async/desktop.py by tools/unasync.py. Change that file, then run make gen.
"""The screens of sandboxes."""

from __future__ import annotations

from typing import Any, List, Literal, Mapping, Optional, Sequence, Tuple

from .. import _desktop as calls
from .._pages import Page
from .._schemas import DesktopScreen, DesktopWindow, Recording
from .requester import Requester

_Button = Literal["left", "middle", "right"]


class Desktop:
    """The screen of a sandbox, used as a person would.

    The image ``modbox/sandbox`` has a desktop; for a sandbox without one all calls raise an error of code
    ``unsupported``. Programs take a moment to react: take a screenshot after what you do.
    """

    def __init__(self, requester: Requester, ref: str) -> None:
        self._requester = requester
        self._ref = ref

    def screen(self) -> DesktopScreen:
        """Returns the size of the screen and the position of the pointer."""
        return self._requester.perform(calls.screen(self._ref))

    def resize(self, width: int, height: int) -> DesktopScreen:
        """Changes the size of the screen."""
        return self._requester.perform(calls.resize(self._ref, width, height))

    def screenshot(
        self,
        *,
        x: Optional[int] = None,
        y: Optional[int] = None,
        width: Optional[int] = None,
        height: Optional[int] = None,
        pointer: bool = False,
    ) -> bytes:
        """Takes a picture of the screen or a part of it, a PNG; with ``pointer`` it shows the mouse pointer."""
        return self._requester.perform(calls.screenshot(self._ref, x, y, width, height, pointer))

    def act(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Performs actions, one after the other, which are as on the wire: ``{"type": "key", "keys": "ctrl+l"}``."""
        self._requester.perform(calls.act(self._ref, actions))

    def move(self, x: int, y: int) -> None:
        """Moves the pointer."""
        self.act([calls.action("move", at=(x, y))])

    def click(
        self,
        x: Optional[int] = None,
        y: Optional[int] = None,
        *,
        button: Optional[_Button] = None,
        clicks: Optional[int] = None,
        hold: Optional[Sequence[str]] = None,
    ) -> None:
        """Clicks, at a position or where the pointer is. ``hold`` are keys that are held down meanwhile."""
        if (x is None) != (y is None):
            raise ValueError("give both x and y, or neither")
        at = None if x is None else (x, y)
        self.act([calls.action("click", at=at, button=button, clicks=clicks, hold=hold)])

    def double_click(self, x: int, y: int, *, button: Optional[_Button] = None) -> None:
        """Clicks twice."""
        self.click(x, y, button=button, clicks=2)

    def right_click(self, x: int, y: int) -> None:
        """Clicks with the right button."""
        self.click(x, y, button="right")

    def drag(
        self,
        start: Tuple[int, int],
        end: Tuple[int, int],
        *,
        button: Optional[_Button] = None,
        hold: Optional[Sequence[str]] = None,
    ) -> None:
        """Drags from a position to another."""
        self.act([calls.action("drag", at=start, to=end, button=button, hold=hold)])

    def scroll(
        self,
        x: int,
        y: int,
        *,
        direction: Optional[Literal["up", "down", "left", "right"]] = None,
        amount: Optional[int] = None,
        hold: Optional[Sequence[str]] = None,
    ) -> None:
        """Turns the wheel at a position: 3 steps down, or ``amount`` steps in a ``direction``."""
        self.act([calls.action("scroll", at=(x, y), direction=direction, amount=amount, hold=hold)])

    def type(self, text: str) -> None:
        """Types a text, any Unicode."""
        self.act([calls.action("type", text=text)])

    def press(self, keys: str) -> None:
        """Presses keys together, such as ``ctrl+l`` or ``Return``; spaces separate combinations one after the other."""
        self.act([calls.action("key", keys=keys)])

    def windows(self) -> List[DesktopWindow]:
        """Returns the windows, in the order of their ids."""
        return self._requester.perform(calls.windows(self._ref))

    def focus(self, window: str) -> None:
        """Raises a window, by its id, and gives it the keyboard."""
        self._requester.perform(calls.focus(self._ref, window))

    def close(self, window: str) -> None:
        """Closes a window, by its id: its program is asked to."""
        self._requester.perform(calls.close(self._ref, window))

    def open(self, target: str) -> None:
        """Opens a URL, or a file of the sandbox by its absolute path."""
        self._requester.perform(calls.open_target(self._ref, target))

    def launch(self, *command: str) -> None:
        """Starts a program, which goes on. Raises ProgramNotFoundError for one that the sandbox does not have."""
        self._requester.perform(calls.launch(self._ref, command))

    def record(
        self,
        *,
        path: Optional[str] = None,
        fps: Optional[int] = None,
        max_seconds: Optional[int] = None,
        max_bytes: Optional[int] = None,
    ) -> Recording:
        """Begins a recording of the screen to a file in the sandbox, an MP4.

        It ends by ``stop_recording``, or by itself: after 600 seconds or with 1 GiB, unless said otherwise. It has 10
        pictures a second unless ``fps`` says otherwise, at most 30.
        """
        return self._requester.perform(calls.record(self._ref, path, fps, max_seconds, max_bytes))

    def recordings(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Page[Recording]:
        """Lists the recordings, newest first.

        A paused sandbox is not resumed; the list then has no sizes.
        """
        return Page(self._requester, calls.recordings(self._ref), limit, cursor)

    def recording(self, recording_id: str) -> Recording:
        """Returns a recording, by its id."""
        return self._requester.perform(calls.recording(self._ref, recording_id))

    def stop_recording(self, recording_id: str) -> Recording:
        """Ends a recording, by its id, and returns when its file is complete."""
        return self._requester.perform(calls.stop_recording(self._ref, recording_id))

    def delete_recording(self, recording_id: str) -> None:
        """Ends a recording, by its id, and deletes its file, unless a later recording has the same path."""
        self._requester.perform(calls.delete_recording(self._ref, recording_id))
