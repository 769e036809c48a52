"""Code that keeps its state, for both clients, against a scripted server."""

import base64
import unittest

import modbox
from server import Server, send_json
from test_client import stream
from test_executions import perform
from test_sandbox import BOX, done, with_box

PNG = b"\x89PNG\r\n"
CHART, TABLE = {"type": "line", "elements": []}, {"schema": {}, "data": [{"a": 1}], "total_rows": 1}
PLOT = {
    "main": False,
    "data": {"image/png": base64.b64encode(PNG).decode(), "text/plain": "<Figure>", "application/vnd.modbox.chart+json": CHART},
}
FRAME = {"data": {"text/plain": "a", "application/vnd.dataresource+json": TABLE}}
VALUE = {"main": True, "data": {"text/plain": "21", "text/html": "<b>21</b>", "application/json": {"n": 21}}, "omitted": ["application/pdf"]}
STARTED = {"type": "started", "context_id": "python", "restarted": True}
END = {"type": "end", "status": "ok", "execution_count": 4, "duration_ms": 3}
CONTEXT = {"id": "c", "language": "python", "cwd": "/", "state": "idle", "created_at": "2026-01-01T00:00:00Z", "restarts": 0}


class CodeTest(unittest.TestCase):
    def run_code(self, *lines, **options):
        server = Server(self, lambda seen, handler, n: stream(handler, list(lines)))

        async def use(sbx):
            return await done(sbx.run_code("x + 1", **options))

        return with_box(server.url, use), server

    def test_output_and_values(self):
        text = [{"type": "stdout", "text": "€"}, {"type": "ping"}, {"type": "stdout", "text": "\n"}, {"type": "stderr", "text": "e"}]
        values = [{"type": "result", "result": PLOT}, {"type": "result", "result": VALUE}]
        got, server = self.run_code(STARTED, *text, *values, END, language="python", timeout_seconds=9)
        self.assertEqual(server.requests[0].path, f"{BOX}/code/stream")
        self.assertEqual(server.requests[0].json(), {"code": "x + 1", "language": "python", "timeout_seconds": 9})
        self.assertEqual((got.status, got.stdout, got.stderr, got.context_id, got.restarted), ("ok", "€\n", "e", "python", True))
        self.assertEqual((got.execution_count, got.duration_ms, got.error, got.truncated), (4, 3, None, False))
        self.assertEqual((got.text, got.html, got.json, got.png), ("21", "<b>21</b>", {"n": 21}, PNG))
        self.assertEqual((got.svg, got.jpeg, got.pdf, got.markdown, got.latex), (None,) * 5)
        plot, value = got.results
        self.assertEqual((plot.text, plot.png, plot.main, plot.html), ("<Figure>", PNG, False, None))
        self.assertEqual((value.text, value.main, value.omitted, value.png), ("21", True, ["application/pdf"], None))

    def test_jupyter_displays_values(self):
        got, _ = self.run_code(STARTED, {"type": "result", "result": PLOT}, {"type": "result", "result": VALUE}, END)
        for shown in (got, got.results[0]):
            self.assertEqual(shown._repr_png_(), PNG)
        self.assertEqual((got._repr_html_(), got.results[0]._repr_html_(), got._repr_svg_()), ("<b>21</b>", None, None))

    def test_figures_and_data_frames_are_data(self):
        got, _ = self.run_code(STARTED, {"type": "result", "result": PLOT}, {"type": "result", "result": FRAME}, END)
        self.assertEqual((got.chart, got.table), (CHART, TABLE))
        self.assertEqual((got.results[1].chart, got.results[1].table), (None, TABLE))

    def test_a_value_that_replaces_an_earlier_value(self):
        first, second = ({"display_id": "d", "data": {"text/plain": text}} for text in ("10%", "100%"))
        other = {"type": "result", "result": {"data": {"text/plain": "other"}}}
        got, _ = self.run_code(STARTED, {"type": "result", "result": first}, other, {"type": "result", "result": second, "update": True}, END)
        self.assertEqual([r.text for r in got.results], ["100%", "other"])

    def test_code_that_fails_is_no_error_of_the_call(self):
        error = {"name": "ZeroDivisionError", "value": "division by zero", "traceback": ["a", "b"]}
        got, _ = self.run_code(STARTED, {"type": "error", "error": error}, {**END, "status": "error"})
        self.assertEqual((got.status, got.error), ("error", modbox.CodeError("ZeroDivisionError", "division by zero", ["a", "b"])))

    def test_callbacks(self):
        lines = [STARTED, {"type": "stdout", "text": "a"}, {"type": "result", "result": VALUE}, {"type": "stderr", "text": "b"}, END]
        server = Server(self, lambda seen, handler, n: stream(handler, lines))

        async def use(sbx):
            told = []
            keep = {name: lambda value, name=name: told.append((name, value)) for name in ("on_stdout", "on_stderr", "on_result")}
            await done(sbx.run_code("x", **keep))
            return [(name, getattr(value, "text", value)) for name, value in told]

        self.assertEqual(with_box(server.url, use), [("on_stdout", "a"), ("on_result", "21"), ("on_stderr", "b")])

    def test_an_end_that_is_not_known(self):
        failure = {"type": "failure", "code": "ended", "message": "the sandbox has ended"}
        for lines, error in (([STARTED, failure], modbox.EndedError), ([STARTED], modbox.ConnectionError)):
            with self.subTest(error), self.assertRaises(error):
                self.run_code(*lines)

    def test_code_is_text(self):
        with self.assertRaisesRegex(TypeError, "code is a str, not list"):
            perform("http://127.0.0.1:9", lambda c: c.sandboxes.run_code("a", ["x"]))

    def test_the_call_of_the_api(self):
        answer = {"status": "ok", "context_id": "c", "stdout": "1", "stderr": "", "results": [VALUE], "execution_count": 1, "duration_ms": 1}
        server = Server(self, lambda seen, handler, n: send_json(handler, answer))
        got = perform(server.url, lambda c: c.sandboxes.run_code("a", "x", context_id="c"))
        self.assertEqual((got.stdout, got.text, got.error), ("1", "21", None))
        self.assertEqual(server.requests[0].json(), {"code": "x", "context_id": "c"})


class ContextsTest(unittest.TestCase):
    def test_contexts(self):
        def answer(seen, handler, n):
            listed = seen.method == "GET"
            send_json(handler, {"items": [CONTEXT]} if listed else CONTEXT)

        server = Server(self, answer)

        async def use(sbx):
            context = await done(sbx.contexts.create(language="python", cwd="/w", env={"A": "1"}))
            await done(sbx.contexts.interrupt(context))
            restarted = await done(sbx.contexts.restart("c"))
            await done(sbx.contexts.delete(context))
            return context, restarted, await done(sbx.contexts.list())

        context, restarted, listed = with_box(server.url, use)
        self.assertEqual((context.id, context.state, restarted.id, listed[0].id), ("c", "idle", "c", "c"))
        calls = [(r.method, r.path) for r in server.requests[: len(server.requests) // 2]]
        paths = [f"{BOX}/contexts", f"{BOX}/contexts/c/interrupt", f"{BOX}/contexts/c/restart", f"{BOX}/contexts/c", f"{BOX}/contexts"]
        self.assertEqual(calls, list(zip(["POST", "POST", "POST", "DELETE", "GET"], paths)))
        self.assertEqual(server.requests[0].json(), {"language": "python", "cwd": "/w", "env": {"A": "1"}})

    def test_code_runs_in_a_context(self):
        server = Server(self, lambda seen, handler, n: stream(handler, [STARTED, END]))

        async def use(sbx):
            for context in (modbox.CodeContext("c", "python", "/", "idle", None), "c"):
                await done(sbx.run_code("x", context=context))

        with_box(server.url, use)
        self.assertEqual([r.json()["context_id"] for r in server.requests], ["c"] * 4)


if __name__ == "__main__":
    unittest.main()
