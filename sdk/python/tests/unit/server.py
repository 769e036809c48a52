"""A scripted server: each test says how requests are answered and looks at what came."""

import json
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Seen:
    """A request that came."""

    def __init__(self, handler, body):
        url = urlsplit(handler.path)
        self.method = handler.command
        self.path = url.path
        self.query = parse_qs(url.query, keep_blank_values=True)
        self.headers = {k.lower(): v for k, v in handler.headers.items()}
        self.body = body

    def json(self):
        return json.loads(self.body)


class Server:
    """Answers with ``answer(seen, handler, n)`` for the n-th request, from 0.

    The first ``cuts`` connections of uploads break after 1000 bytes of their content, and ``requests`` does not have these.
    """

    def __init__(self, test: unittest.TestCase, answer, cuts=0):
        self.requests = []
        self.cuts = cuts
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                with lock:
                    cut = self.command == "PUT" and outer.cuts > 0
                    outer.cuts -= cut
                if cut:
                    self.rfile.read(1000)
                    self.close_connection = True
                    return
                seen = Seen(self, read_body(self))
                with lock:
                    n = len(outer.requests)
                    outer.requests.append(seen)
                answer(seen, self, n)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

            def log_message(self, *args):
                pass

        class QuietServer(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass  # clients that go away are part of the tests

        self._server = QuietServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        test.addCleanup(thread.join)
        test.addCleanup(self._server.server_close)
        test.addCleanup(self._server.shutdown)
        self.url = f"http://127.0.0.1:{self._server.server_port}"


def read_body(handler):
    if "chunked" not in handler.headers.get("transfer-encoding", ""):
        return handler.rfile.read(int(handler.headers.get("content-length", 0)))
    body = b""
    while size := int(handler.rfile.readline(), 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body


def send(handler, content, status=200, **headers):
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("content-length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def send_json(handler, value, status=200, **headers):
    send(handler, json.dumps(value).encode(), status, content_type="application/json", **headers)


def send_problem(handler, status, code, **more):
    body = {"title": "t", "status": status, "detail": f"it is {code}", "code": code, **more}
    send_json(handler, body, status, x_request_id="r-1")


def wire_sandbox(**more):
    return {
        "id": "0198f0aa-0000-7000-8000-000000000001",
        "name": "a",
        "state": "running",
        "url": "http://127.0.0.1/s/a-x",
        "image": "modbox/code-exec:latest",
        "image_digest": "sha256:1",
        "labels": {"k": "v"},
        "resources": {"memory": "512Mi", "cpu": "1", "disk": "2Gi"},
        "ttl_seconds": 60,
        "deadline": "2026-01-01T00:01:00Z",
        "cause": None,
        "created_by": "u",
        "workspace_id": "w",
        "created_at": "2026-01-01T00:00:00.123456789Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "started_at": None,
        "ended_at": None,
        "something_new": 1,
        **more,
    }


WIRE_DETAIL = {
    "id": "id-1",
    "name": "a b",
    "status": "provisioning",
    "sandbox_url": None,
    "image": "modbox/code-exec:latest",
    "created_by": "u",
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
    "destroyed_at": None,
}

WIRE_IMAGE = {
    "id": "i",
    "name": "modbox/code-exec",
    "image": "modbox/code-exec",
    "tag": "latest",
    "description": None,
    "enabled": True,
    "is_default": True,
    "memory_mb": 512,
    "readiness_port": None,
    "ttl_seconds": None,
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
}
