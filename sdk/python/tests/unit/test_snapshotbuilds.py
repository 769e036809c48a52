"""Builds of snapshots of both clients, against a scripted server."""

import asyncio
import threading
import unittest
from contextlib import aclosing, closing
from unittest import mock

import modbox
from modbox import AsyncModboxClient, ModboxClient
from server import Server, send, send_json, send_problem
from test_executions import perform

SNAPSHOT = {"id": "b", "name": "n", "full_name": "@w/n", "image": "i", "created_at": "2026-01-01T00:00:00Z"}


def line(n, phase="installing"):
    return {"time": f"2026-01-01T00:00:{n:02}.000000001Z", "phase": phase, "message": f"line {n}"}


class Building:
    """A server of one build at a time.

    ``looks`` say what it is at, from one look to the next, the last for good: a progress, and a log. Its finish is
    answered by ``finish``, when it was looked at as often as there are looks; with None, never.
    """

    def __init__(self, test, looks, finish=None):
        self._looks = looks
        self._finish = finish
        self.over = threading.Event()
        test.addCleanup(self.over.set)
        self._begin()
        self._server = Server(test, self._answer)
        self.url = self._server.url
        self.requests = self._server.requests

    def _begin(self):
        self._looked = 0
        self.finishing = threading.Event()
        self._enough = threading.Event()

    def _answer(self, seen, handler, n):
        look = self._looks[min(self._looked, len(self._looks) - 1)]
        if seen.method == "PUT":
            send(handler, b"", 204)
        elif seen.path == "/v1/snapshots/b":
            send_json(handler, SNAPSHOT)
        elif seen.path == "/v1/snapshot-builds":
            self._begin()
            send_json(handler, {"id": "b", "unchanged": False}, 201)
        elif seen.path == "/v1/snapshot-builds/b/progress":
            self.finishing.wait()  # which it may overtake
            send_json(handler, {"id": "b", **look["progress"]})
        elif seen.path == "/v1/snapshot-builds/b/log":
            send_json(handler, {"lines": look["log"], "truncated": False, "ended": look["progress"]["phase"] == "done"})
            self._looked += 1
            if self._looked >= len(self._looks):
                self._enough.set()
        elif seen.path == "/v1/snapshot-builds/b/finish":
            self.finishing.set()
            (self._enough if self._finish else self.over).wait()
            if self._finish:
                self._finish(handler)


def lose(handler):
    """Breaks the connection without an answer."""
    handler.close_connection = True


LOOKS = [
    {"progress": {"phase": "installing", "detail": "2 packages", "done": 1, "total": 2}, "log": [line(0, "begun"), line(1)]},
    {"progress": {"phase": "installing", "detail": "2 packages", "done": 1, "total": 2}, "log": [line(0, "begun"), line(1), line(2)]},
    {"progress": {"phase": "done", "detail": "it is"}, "log": [line(0, "begun"), line(1), line(2), line(3, "done")]},
]
TOLD = [
    ("begun", "b", ""),
    ("progress", "uploading", "its files"),
    ("line", "begun", "line 0"),
    ("line", "installing", "line 1"),
    ("progress", "installing", "2 packages"),
    ("line", "installing", "line 2"),
    ("line", "done", "line 3"),
    ("done", "b", ""),
]
FAILED = [{"progress": {"phase": "failed", "detail": "no such package"}, "log": [line(0, "begun"), line(1, "failed")]}]


def short(event):
    return event.type, event.phase or event.id or event.snapshot.id, event.message


def collected(server, **options):
    """What a build tells each client, and the error it raised or None."""

    async def run(client):
        events = []
        stream = client.snapshots.build_stream("base", **options)
        try:
            if isinstance(client, ModboxClient):
                for event in stream:
                    events.append(event)
            else:
                async for event in stream:
                    events.append(event)
        except modbox.ModboxError as err:
            return events, (type(err), str(err), err.message, err.code, err.field)
        return events, None

    return perform(server.url, run)


class SnapshotBuildsTest(unittest.TestCase):
    def setUp(self):
        patch = mock.patch("modbox._snapshotbuilds.PAUSE_SECONDS", 0.01)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_build_tells_what_happens(self):
        server = Building(self, LOOKS, lambda handler: send_json(handler, SNAPSHOT, 201))
        events, err = collected(server, name="n", files=b"tgz", npm_packages=("p",), env={"A": "1"}, wait_for_quota_seconds=30)
        self.assertIsNone(err)
        self.assertEqual([short(e) for e in events], TOLD)
        self.assertEqual((events[1].phase, events[4].done, events[4].total), ("uploading", 1, 2))
        self.assertEqual((events[2].time.isoformat(), events[2].truncated), ("2026-01-01T00:00:00+00:00", False))
        self.assertEqual((events[-1].snapshot.full_name, events[-1].unchanged), ("@w/n", False))
        sent = [(r.method, r.path, r.body) for r in server.requests if r.method != "GET"]
        self.assertEqual(
            sent,
            [
                ("POST", "/v1/snapshot-builds", b'{"runtime": "base", "name": "n"}'),
                ("PUT", "/v1/snapshot-builds/b/files", b"tgz"),
                ("POST", "/v1/snapshot-builds/b/finish", b'{"npm_packages": ["p"], "env": {"A": "1"}, "wait_for_quota_seconds": 30}'),
            ]
            * 3,
        )

    def test_a_build_goes_on_without_an_answer(self):
        for finish in (lose, lambda handler: send(handler, b"a proxy's page", 504)):
            server = Building(self, LOOKS, finish)
            events, err = collected(server, files=b"tgz")
            self.assertIsNone(err)
            # Nothing is told twice of what was seen before.
            self.assertEqual([short(e) for e in events], TOLD)
            self.assertEqual(len([r for r in server.requests if r.path.endswith("/finish")]), 3)  # never sent twice

    def test_a_build_that_fails(self):
        def check(looks, finish, phases, *want):
            events, err = collected(Building(self, looks, finish))
            self.assertEqual([e.phase or e.id for e in events], phases)
            self.assertEqual((err[0], *err[2:]), want)
            self.assertEqual(err[1], err[2])

        failed = ["b", "begun", "failed"]
        errors = [{"location": "body.apt_packages[0]", "message": "m"}]

        def refuse(handler):
            send_problem(handler, 422, "invalid", errors=errors)

        def unable(handler):
            send_problem(handler, 502, "agent_unreachable")

        check(FAILED, refuse, failed, modbox.ValidationError, "build b: it is invalid", "invalid", "apt_packages[0]")
        check(FAILED, lose, failed, modbox.ModboxError, "build b: no such package", "internal", None)
        # A server that says by itself that it cannot is believed.
        check(FAILED, unable, failed, modbox.ModboxError, "build b: it is agent_unreachable", "agent_unreachable", None)

    def test_a_finish_that_never_came_is_none(self):
        server = Building(self, [{"progress": {"phase": "begun"}, "log": [line(0, "begun")]}], lose)
        with ModboxClient("mbx_test", base_url=server.url) as client, self.assertRaisesRegex(modbox.ConnectionError, "^build b: "):
            list(client.snapshots.build_stream("base"))

        async def run():
            async with AsyncModboxClient("mbx_test", base_url=server.url) as client:
                with self.assertRaisesRegex(modbox.ConnectionError, "^build b: "):
                    [e async for e in client.snapshots.build_stream("base")]

        asyncio.run(run())

    def test_what_it_is_at_may_fail_to_be_had(self):
        asked = threading.Event()

        def answer(seen, handler, n):
            if seen.method == "GET":
                asked.set()
                return send_problem(handler, 404, "not_found")
            if seen.path.endswith("/finish"):
                asked.wait()
            send_json(handler, SNAPSHOT if seen.path.endswith("/finish") else {"id": "b", "unchanged": False}, 201)

        events, err = collected(Server(self, answer))
        self.assertEqual(([e.type for e in events], err), (["begun", "done"], None))

    def test_nothing_to_build(self):
        server = Server(self, lambda seen, handler, n: send_json(handler, {"unchanged": True, "snapshot": SNAPSHOT}))
        events, err = collected(server, content_hash="h")
        self.assertEqual(([(e.type, e.unchanged, e.snapshot.id) for e in events], err), ([("done", True, "b")], None))

    def test_leaving_a_build(self):
        server = Building(self, LOOKS[:1])
        with ModboxClient("mbx_test", base_url=server.url) as client:
            before = set(threading.enumerate())
            with closing(client.snapshots.build_stream("base")) as events:
                self.assertEqual([e.type for _, e in zip(range(2), events)], ["begun", "line"])
            # What still waits for the answer keeps no program from its end.
            self.assertEqual({t.daemon for t in set(threading.enumerate()) - before}, {True})

        async def run():
            async with AsyncModboxClient("mbx_test", base_url=server.url) as client:
                before = asyncio.all_tasks()
                async with aclosing(client.snapshots.build_stream("base")) as events:
                    async for event in events:
                        if event.type == "line":
                            break
                return asyncio.all_tasks() - before

        self.assertEqual(asyncio.run(run()), set())

    def test_a_log_is_followed(self):
        def logs(*numbers):
            return [line(n) for n in numbers]

        answers = [
            {"lines": logs(0, 1), "truncated": False, "ended": False},
            None,  # a connection that breaks is taken up again where it was
            {"lines": logs(1, 2, 3), "truncated": True, "ended": False},  # overlaps
            {"lines": logs(9, 10), "truncated": True, "ended": False},  # what was between is gone
            {"lines": [*logs(9, 10), line(11, "failed")], "truncated": True, "ended": True},
        ]

        def answer(seen, handler, n):
            self.assertEqual(seen.path, "/v1/snapshot-builds/b/log")
            value = answers[n % len(answers)]
            send_json(handler, value) if value else lose(handler)

        server = Server(self, answer)
        lines = perform(server.url, lambda c: c.snapshots.build_log("b", follow=True))
        self.assertEqual(
            [("… " if l.truncated else "") + l.message for l in lines],
            ["line 0", "line 1", "line 2", "line 3", "… line 9", "line 10", "line 11"],
        )
        self.assertEqual((lines[-1].phase, lines[-1].time.second), ("failed", 11))
        self.assertEqual(len(server.requests), 3 * len(answers))

    def test_a_log_as_it_is_and_a_look(self):
        def answer(seen, handler, n):
            if "/none/" in seen.path:
                return send_problem(handler, 404, "not_found")
            log = {"lines": [line(5)], "truncated": True, "ended": False}
            send_json(handler, log if seen.path.endswith("/log") else {"id": "b", "phase": "pulling", "done": 3})

        url = Server(self, answer).url
        self.assertEqual([(l.message, l.truncated) for l in perform(url, lambda c: c.snapshots.build_log("b"))], [("line 5", True)])
        at = perform(url, lambda c: c.snapshots.build_progress("b"))
        self.assertEqual((at.phase, at.message, at.done, at.total), ("pulling", "", 3, None))
        with ModboxClient("mbx_test", base_url=url) as client:
            for call in (client.snapshots.build_progress, lambda b: list(client.snapshots.build_log(b, follow=True))):
                with self.assertRaises(modbox.NotFoundError):
                    call("none")


if __name__ == "__main__":
    unittest.main()
