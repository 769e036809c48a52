"""The stream of events, of both clients, against a scripted server."""

import unittest

import modbox
from modbox import AsyncModbox, Modbox
from server import Server, send, send_problem

EVENT = '{"seq":%d,"sandbox_id":"s","sandbox_name":"a","time":"2026-01-01T00:00:00Z","type":"exec","message":"m"}'


def message(seq):
    return f"id: {seq}\ndata: {EVENT % seq}\n\n".encode()


class EventsTest(unittest.IsolatedAsyncioTestCase):
    def serve(self, answer):
        server = Server(self, answer)
        client = Modbox("mbx_test", base_url=server.url)
        self.addCleanup(client.close)
        aio = AsyncModbox("mbx_test", base_url=server.url)
        self.addAsyncCleanup(aio.close)
        return server, client.events, aio.events

    async def test_follow_resumes(self):
        problem = b'event: problem\ndata: {"code":"unauthenticated","detail":"revoked"}\n\n'
        answers = [
            lambda handler: send(handler, b"retry: 1000\nid: 4\n\n" + message(5) + b"id: 6\ndata: {"),
            lambda handler: send(handler, b": ping\nid: 9\n\n"),
            lambda handler: send_problem(handler, 503, "unavailable"),
            lambda handler: send(handler, message(10) + problem[:9]),
            lambda handler: send(handler, problem),
        ]
        server, events, aio = self.serve(lambda seen, handler, n: answers[n % len(answers)](handler))
        got = []
        with self.assertRaises(modbox.AuthError):
            for event in events.follow(sandbox="a", types=["exec", "created"], after_seq=3):
                got.append((event.seq, event.sandbox_name))
        with self.assertRaises(modbox.AuthError):
            async for event in aio.follow(sandbox="a", types=["exec", "created"], after_seq=3):
                got.append((event.seq, event.sandbox_name))
        self.assertEqual(got, [(5, "a"), (10, "a")] * 2)
        self.assertEqual([seen.headers["last-event-id"] for seen in server.requests], ["3", "5", "9", "9", "10"] * 2)
        self.assertEqual(server.requests[0].path, "/v1/events/stream")
        self.assertEqual(server.requests[0].query, {"sandbox": ["a"], "type": ["exec", "created"]})

    async def test_first_connection_must_work(self):
        server, events, aio = self.serve(lambda seen, handler, n: send_problem(handler, 403, "forbidden"))
        with self.assertRaises(modbox.AuthError):
            next(iter(events.follow()))
        with self.assertRaises(modbox.AuthError):
            await aio.follow().__anext__()
        self.assertEqual(len(server.requests), 2)

    async def test_list(self):
        server, events, aio = self.serve(lambda seen, handler, n: send(handler, b'{"items":[' + (EVENT % 1).encode() + b"]}"))
        self.assertEqual([e.seq for e in events.list(types=["exec"], order="desc", limit=5)], [1])
        self.assertEqual([e.seq async for e in aio.list(sandbox="a", since="2026-01-01T00:00:00Z", until="2026-02-01T00:00:00Z")], [1])
        self.assertEqual(server.requests[0].query, {"type": ["exec"], "order": ["desc"], "limit": ["5"]})
        self.assertEqual(
            server.requests[1].query, {"sandbox": ["a"], "since": ["2026-01-01T00:00:00Z"], "until": ["2026-02-01T00:00:00Z"]}
        )
