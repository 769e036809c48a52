"""Runs examples/python/tools.py with a model whose answers are written here, against the server at MODBOX_URL."""

import io
import json
import os
import sys
import threading
import unittest
from contextlib import redirect_stdout
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[4] / "examples" / "python"))
import tools

PROGRAM = "print([n for n in range(2, 20) if all(n % d for d in range(2, n))])"
TURNS = [
    [("write_file", {"path": "/tmp/primes.py", "content": PROGRAM}), ("read_file", {"path": "/tmp/missing"})],
    [("run_command", {"command": "python3 /tmp/primes.py"}), ("no_tool", {})],
]


class ModelServer(HTTPServer):
    """A model that calls the tools of TURNS, one turn after the other, and then ends."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, body))
        turn = len(self.server.requests) - 1
        message = {"role": "assistant", "content": "The primes are there."}
        if turn < len(TURNS):
            calls = [(f"{turn}-{i}", *call) for i, call in enumerate(TURNS[turn])]
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}} for id, name, arguments in calls
            ]
        content = json.dumps({"choices": [{"message": message}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


class ToolsTest(unittest.TestCase):
    def test_the_model_gets_what_the_tools_answer(self):
        model = ModelServer()
        thread = threading.Thread(target=model.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        for cleanup in (thread.join, model.server_close, model.shutdown):
            self.addCleanup(cleanup)
        settings = {"MODEL_URL": f"http://127.0.0.1:{model.server_port}/v1", "MODEL_NAME": "scripted"}
        printed = io.StringIO()
        with mock.patch.dict(os.environ, settings), redirect_stdout(printed):
            self.assertEqual(tools.work("Find the primes below 20."), "The primes are there.")
        path, last = model.requests[-1]
        self.assertEqual((path, len(model.requests), last["model"]), ("/v1/chat/completions", 3, "scripted"))
        self.assertEqual([t["function"]["name"] for t in last["tools"]], ["run_command", "write_file", "read_file"])
        answers = [(m["tool_call_id"], m["content"]) for m in last["messages"] if m["role"] == "tool"]
        self.assertEqual(answers[0], ("0-0", "wrote /tmp/primes.py"))
        self.assertRegex(answers[1][1], "^error: .*missing")
        self.assertEqual(answers[2], ("1-0", "exit code 0\n[2, 3, 5, 7, 11, 13, 17, 19]\n"))
        self.assertEqual(answers[3], ("1-1", "there is no tool no_tool"))
        self.assertIn("run_command: exit code 0\n", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
