"""The screens of sandboxes."""

from __future__ import annotations

from typing import Any, List, Literal, Mapping, Optional, Sequence, Tuple

from .. import _desktop as calls
from .._pages import AsyncPages
from .._schemas import DesktopScreen, DesktopWindow, Recording
from .requester import AsyncRequester

_Button = Literal["left", "middle", "right"]


class AsyncDesktop:
    """The screen of a sandbox, used as a person would.

    The image ``modbox/sandbox`` has a desktop; for a sandbox without one all calls raise an error of code
    ``unsupported``. Programs take a moment to react: take a screenshot after what you do.
    """

    def __init__(self, requester: AsyncRequester, ref: str) -> None:
        self._requester = requester
        self._ref = ref

    async def screen(self) -> DesktopScreen:
        """Returns the size of the screen and the position of the pointer."""
        return await self._requester.perform(calls.screen(self._ref))

    async def resize(self, width: int, height: int) -> DesktopScreen:
        """Changes the size of the screen."""
        return await self._requester.perform(calls.resize(self._ref, width, height))

    async def screenshot(
        self,
        *,
        x: Optional[int] = None,
        y: Optional[int] = None,
        width: Optional[int] = None,
        height: Optional[int] = None,
        pointer: bool = False,
    ) -> bytes:
        """Takes a picture of the screen or a part of it, a PNG; with ``pointer`` it shows the mouse pointer."""
        return await self._requester.perform(calls.screenshot(self._ref, x, y, width, height, pointer))

    async def act(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Performs actions, one after the other, which are as on the wire: ``{"type": "key", "keys": "ctrl+l"}``."""
        await self._requester.perform(calls.act(self._ref, actions))

    async def move(self, x: int, y: int) -> None:
        """Moves the pointer."""
        await self.act([calls.action("move", at=(x, y))])

    async def click(
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
        await self.act([calls.action("click", at=at, button=button, clicks=clicks, hold=hold)])

    async def double_click(self, x: int, y: int, *, button: Optional[_Button] = None) -> None:
        """Clicks twice."""
        await self.click(x, y, button=button, clicks=2)

    async def right_click(self, x: int, y: int) -> None:
        """Clicks with the right button."""
        await self.click(x, y, button="right")

    async def drag(
        self,
        start: Tuple[int, int],
        end: Tuple[int, int],
        *,
        button: Optional[_Button] = None,
        hold: Optional[Sequence[str]] = None,
    ) -> None:
        """Drags from a position to another."""
        await self.act([calls.action("drag", at=start, to=end, button=button, hold=hold)])

    async def scroll(
        self,
        x: int,
        y: int,
        *,
        direction: Optional[Literal["up", "down", "left", "right"]] = None,
        amount: Optional[int] = None,
        hold: Optional[Sequence[str]] = None,
    ) -> None:
        """Turns the wheel at a position: 3 steps down, or ``amount`` steps in a ``direction``."""
        await self.act([calls.action("scroll", at=(x, y), direction=direction, amount=amount, hold=hold)])

    async def type(self, text: str) -> None:
        """Types a text, any Unicode."""
        await self.act([calls.action("type", text=text)])

    async def press(self, keys: str) -> None:
        """Presses keys together, such as ``ctrl+l`` or ``Return``; spaces separate combinations one after the other."""
        await self.act([calls.action("key", keys=keys)])

    async def windows(self) -> List[DesktopWindow]:
        """Returns the windows, in the order of their ids."""
        return await self._requester.perform(calls.windows(self._ref))

    async def focus(self, window: str) -> None:
        """Raises a window, by its id, and gives it the keyboard."""
        await self._requester.perform(calls.focus(self._ref, window))

    async def close(self, window: str) -> None:
        """Closes a window, by its id: its program is asked to."""
        await self._requester.perform(calls.close(self._ref, window))

    async def open(self, target: str) -> None:
        """Opens a URL, or a file of the sandbox by its absolute path."""
        await self._requester.perform(calls.open_target(self._ref, target))

    async def launch(self, *command: str) -> None:
        """Starts a program, which goes on. Raises ProgramNotFoundError for one that the sandbox does not have."""
        await self._requester.perform(calls.launch(self._ref, command))

    async def record(
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
        return await self._requester.perform(calls.record(self._ref, path, fps, max_seconds, max_bytes))

    def recordings(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> AsyncPages[Recording]:
        """Lists the recordings, newest first.

        A paused sandbox is not resumed; the list then has no sizes.
        """
        return AsyncPages(self._requester, calls.recordings(self._ref), limit, cursor)

    async def recording(self, recording_id: str) -> Recording:
        """Returns a recording, by its id."""
        return await self._requester.perform(calls.recording(self._ref, recording_id))

    async def stop_recording(self, recording_id: str) -> Recording:
        """Ends a recording, by its id, and returns when its file is complete."""
        return await self._requester.perform(calls.stop_recording(self._ref, recording_id))

    async def delete_recording(self, recording_id: str) -> None:
        """Ends a recording, by its id, and deletes its file, unless a later recording has the same path."""
        await self._requester.perform(calls.delete_recording(self._ref, recording_id))
