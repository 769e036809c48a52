import asyncio
import json
import unittest

from modbox import AsyncModboxClient, ModboxClient
from server import Server, send_json

SCREEN = {"width": 800, "height": 600, "cursor": {"x": 1, "y": 2}}
WINDOW = {"id": "0x1", "title": "T", "wm_class": "xterm", "pid": 3, "x": 0, "y": 0, "width": 4, "height": 5, "active": True}
FILM = {"id": "r", "path": "/a.mp4", "state": "recording", "created_at": "2026-01-02T03:04:05Z", "size_bytes": 7}
AT = {"x": 1, "y": 2}


def action(**members):
    return ("POST", "/actions", {"actions": [members]})


REQUESTS = [
    ("GET", "", None),
    ("PATCH", "", {"width": 800, "height": 600}),
    ("GET", "/screenshot", None),
    action(type="click", at=AT),
    action(type="click"),
    action(type="click", at=AT, clicks=2),
    action(type="click", at=AT, button="right"),
    action(type="move", at=AT),
    action(type="drag", at=AT, to={"x": 3, "y": 4}, hold=["shift"]),
    action(type="scroll", at=AT, direction="up", amount=5),
    action(type="type", text="text"),
    action(type="key", keys="ctrl+l"),
    ("GET", "/windows", None),
    ("POST", "/windows/0x1/focus", None),
    ("DELETE", "/windows/0x1", None),
    ("POST", "/open", {"target": "about:blank"}),
    ("POST", "/open", {"command": ["xterm", "-T", "a"]}),
    ("POST", "/recordings", {"path": "/a.mp4", "fps": 5, "max_seconds": 6, "max_bytes": 7}),
    ("GET", "/recordings/r", None),
    ("POST", "/recordings/r/stop", None),
    ("GET", "/recordings", None),
    ("DELETE", "/recordings/r", None),
]


def answer(seen, handler, n):
    path = seen.path.split("?")[0]
    if path.endswith("/screenshot"):
        handler.send_response(200)
        handler.send_header("Content-Length", "3")
        handler.end_headers()
        handler.wfile.write(b"png")
        return None
    if path.endswith("/recordings") and seen.method == "GET":
        return send_json(handler, {"items": [FILM]})
    if "/recordings" in path and seen.method != "DELETE":
        return send_json(handler, FILM)
    if path.endswith("/windows"):
        return send_json(handler, {"items": [WINDOW]})
    if path.endswith("/desktop"):
        return send_json(handler, SCREEN)
    handler.send_response(204)
    return handler.end_headers()


class DesktopCalls(unittest.TestCase):
    def check(self, server, screen, picture, windows, film, films):
        self.assertEqual((screen.width, screen.height, screen.cursor.x, screen.cursor.y), (800, 600, 1, 2))
        self.assertEqual(picture, b"png")
        self.assertEqual([(w.id, w.title, w.wm_class, w.pid, w.active) for w in windows], [("0x1", "T", "xterm", 3, True)])
        self.assertEqual((film.id, film.path, film.state, film.error), ("r", "/a.mp4", "recording", None))
        self.assertEqual([(f.id, f.created_at.year, f.ended_at, f.size_bytes) for f in films], [("r", 2026, None, 7)])
        prefix = "/v1/sandboxes/a%20b/desktop"
        self.assertEqual([(r.method, r.path.replace(prefix, ""), json.loads(r.body or b"null")) for r in server.requests], REQUESTS)

        self.assertEqual(server.requests[2].query, {"x": ["0"], "width": ["5"], "height": ["6"], "pointer": ["true"]})

    def test_every_call(self):
        server = Server(self, answer)
        with ModboxClient(token="mbx_test", base_url=server.url) as client:
            desktop = client.sandboxes.desktop("a b")
            screen = desktop.screen()
            desktop.resize(800, 600)
            picture = desktop.screenshot(x=0, width=5, height=6, pointer=True)
            desktop.click(1, 2)
            desktop.click()
            desktop.double_click(1, 2)
            desktop.right_click(1, 2)
            desktop.move(1, 2)
            desktop.drag((1, 2), (3, 4), hold=["shift"])
            desktop.scroll(1, 2, direction="up", amount=5)
            desktop.type("text")
            desktop.press("ctrl+l")
            windows = desktop.windows()
            desktop.focus("0x1")
            desktop.close("0x1")
            desktop.open("about:blank")
            desktop.launch("xterm", "-T", "a")
            film = desktop.record(path="/a.mp4", fps=5, max_seconds=6, max_bytes=7)
            desktop.recording("r")
            desktop.stop_recording("r")
            films = list(desktop.recordings())
            desktop.delete_recording("r")
            with self.assertRaises(ValueError):
                desktop.click(1)
        self.check(server, screen, picture, windows, film, films)

    def test_every_call_of_asyncio(self):
        server = Server(self, answer)

        async def calls():
            async with AsyncModboxClient(token="mbx_test", base_url=server.url) as client:
                desktop = client.sandboxes.desktop("a b")
                screen = await desktop.screen()
                await desktop.resize(800, 600)
                picture = await desktop.screenshot(x=0, width=5, height=6, pointer=True)
                await desktop.click(1, 2)
                await desktop.click()
                await desktop.double_click(1, 2)
                await desktop.right_click(1, 2)
                await desktop.move(1, 2)
                await desktop.drag((1, 2), (3, 4), hold=["shift"])
                await desktop.scroll(1, 2, direction="up", amount=5)
                await desktop.type("text")
                await desktop.press("ctrl+l")
                windows = await desktop.windows()
                await desktop.focus("0x1")
                await desktop.close("0x1")
                await desktop.open("about:blank")
                await desktop.launch("xterm", "-T", "a")
                film = await desktop.record(path="/a.mp4", fps=5, max_seconds=6, max_bytes=7)
                await desktop.recording("r")
                await desktop.stop_recording("r")
                films = [film async for film in desktop.recordings()]
                await desktop.delete_recording("r")
                return screen, picture, windows, film, films

        self.check(server, *asyncio.run(calls()))
