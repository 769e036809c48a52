"""Builds of snapshots. Needs a server: MODBOX_URL and MODBOX_API_TOKEN."""

import asyncio
import http.client
import io
import os
import tarfile
import time
import unittest
from urllib.parse import urlsplit

import modbox


def name(kind):
    return f"py-{kind}-{os.getpid()}-{time.time_ns()}"


def packed(file, text):
    """A tar.gz of one file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo(file)
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def lines(events):
    """The lines among the events of a build, as its log has them."""
    told = [e for e in events if e.type == "line"]
    return [modbox.SnapshotBuildLine(phase=e.phase, message=e.message, time=e.time, truncated=e.truncated) for e in told]


class Losing(modbox.UrllibTransport):
    """Breaks the connection of a finish after it has arrived."""

    def __init__(self, other):
        super().__init__()
        self._other = other

    def send(self, request):
        if not request.url.endswith("/finish"):
            return super().send(request)
        url = urlsplit(request.url)
        connection = http.client.HTTPConnection(url.netloc)
        connection.request("POST", url.path, request.content, dict(request.headers))
        while self._other.snapshots.build_progress(url.path.split("/")[-2]).phase == "begun":
            pass
        connection.close()
        raise request.failed(OSError("the connection broke"))


class SnapshotBuildTest(unittest.TestCase):
    def test_urllib(self):
        with modbox.ModboxClient(transport=modbox.UrllibTransport()) as client:
            self.build(client, "urllib")

    def test_httpx(self):
        with modbox.ModboxClient(transport=modbox.HttpxTransport()) as client:
            self.build(client, "httpx")

    def build(self, client, kind):
        files = packed("a.txt", "here\n")
        events = list(client.snapshots.build_stream("modbox/base", name=name(kind), files=files, dir="/srv", apt_packages=["hello"]))
        snapshot = events[-1].snapshot
        self.assertEqual((events[0].id, events[-1].type, events[-1].unchanged), (snapshot.id, "done", False))
        told = lines(events)
        self.assertEqual((told[0].phase, told[-1].phase), ("begun", "done"))
        self.assertEqual(list(client.snapshots.build_log(snapshot.id, follow=True)), told)
        self.assertEqual(client.snapshots.build_progress(snapshot.id).phase, "done")
        try:
            with client.sandboxes.temporary(snapshot=snapshot.id, ttl_seconds=3600, wait_seconds=600) as sandbox:
                self.assertEqual(client.sandboxes.exec(sandbox.id, shell="cat /srv/a.txt; hello").stdout, "here\nHello, world!\n")
        finally:
            client.snapshots.delete(snapshot.id)

    def test_a_build_goes_on_without_its_connection(self):
        with modbox.ModboxClient() as client, modbox.ModboxClient(transport=Losing(client)) as losing:
            events = list(losing.snapshots.build_stream("modbox/base", name=name("lost"), env={"A": "1"}))
            snapshot = events[-1].snapshot
            self.assertEqual(lines(events), list(client.snapshots.build_log(snapshot.id)))
            self.assertEqual(client.snapshots.get(snapshot.id).id, snapshot.id)
            client.snapshots.delete(snapshot.id)

    def test_a_build_that_fails(self):
        events = []
        with modbox.ModboxClient() as client:
            with self.assertRaises(modbox.ValidationError) as caught:
                for event in client.snapshots.build_stream("no-such-image", name=name("failed"), env={"A": "1"}):
                    events.append(event)
            self.assertEqual(caught.exception.field, "runtime")
            self.assertTrue(str(caught.exception).startswith(f"build {events[0].id}: "))
            log = list(client.snapshots.build_log(events[0].id, follow=True))
            at = client.snapshots.build_progress(events[0].id)
            self.assertEqual((log[-1].phase, at.phase, at.message), ("failed", "failed", log[-1].message))
            self.assertIn("no-such-image", at.message)

    def test_asyncio(self):
        asyncio.run(self.build_async())

    async def build_async(self):
        async with modbox.AsyncModboxClient() as client:

            async def follow(build):
                return [line async for line in client.snapshots.build_log(build, follow=True)]

            events, followed = [], None
            async for event in client.snapshots.build_stream("modbox/base", name=name("asyncio"), apt_packages=["hello"]):
                events.append(event)
                if event.type == "begun":
                    followed = asyncio.ensure_future(follow(event.id))
            self.assertEqual(await followed, lines(events))
            self.assertEqual((await client.snapshots.build_progress(events[0].id)).phase, "done")
            with self.assertRaises(modbox.ValidationError):
                async for _ in client.snapshots.build_stream("no-such-image", name=name("failed"), env={"A": "1"}):
                    pass
            await client.snapshots.delete(events[-1].snapshot.id)


if __name__ == "__main__":
    unittest.main()
