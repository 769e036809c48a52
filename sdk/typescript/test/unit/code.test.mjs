import assert from "node:assert/strict";
import { test } from "node:test";
import { ModboxError, Sandbox } from "modbox-sdk";
import { json, serve, wireSandbox } from "../server.mjs";

const { id } = wireSandbox();

async function withSandbox(t, answer) {
  const s = await serve(t, (r, res, n) => (n === 0 ? json(res, wireSandbox(), 201) : answer(r, res, n - 1)));
  return { ...s, sbx: await Sandbox.create({ client: s.client() }) };
}

function sendEvents(res, ...events) {
  res.end(events.map((e) => `${JSON.stringify(e)}\n`).join(""));
}

const started = { type: "started", context_id: "python" };
const end = { type: "end", status: "ok", execution_count: 3, duration_ms: 5 };
const context = { id: "c1", language: "bash", cwd: "/tmp", state: "idle", created_at: "2026-01-01T00:00:00Z", restarts: 0 };

test("runCode collects output and values, and calls back", async (t) => {
  const { sbx, requests } = await withSandbox(t, (_, res) =>
    sendEvents(
      res,
      started,
      { type: "stdout", text: "a" },
      { type: "ping" },
      { type: "stderr", text: "w" },
      { type: "result", result: { main: false, display_id: "d", data: { "text/html": "<b>old</b>" } } },
      { type: "result", update: true, result: { main: false, display_id: "d", data: { "text/html": "<b>new</b>", "image/svg+xml": "<svg/>" } } },
      { type: "result", result: { main: false, data: { "image/png": "AP8=", "image/jpeg": "AQ==", "application/pdf": "Ag==" } } },
      { type: "later" },
      { type: "result", result: { main: true, data: { "text/plain": "21", "application/json": { a: [1] }, "text/markdown": "m", "text/latex": "l" }, omitted: ["text/html"] } },
      { type: "stdout", text: "b" },
      end,
    ),
  );
  const seen = [];
  const r = await sbx.runCode("x", { timeoutSeconds: 9, onStdout: (s) => seen.push(s), onStderr: (s) => seen.push(s), onResult: (v) => seen.push(v) });
  assert.deepEqual(requests[1].json(), { code: "x", timeout_seconds: 9 });
  assert.equal(requests[1].path, `/v1/sandboxes/${id}/code/stream`);
  assert.deepEqual([r.status, r.stdout, r.stderr, r.contextId, r.executionCount, r.durationMs, r.restarted, r.error], ["ok", "ab", "w", "python", 3, 5, false, undefined]);
  assert.deepEqual(r.results.map((v) => [v.main, v.text, v.html]), [[false, undefined, "<b>new</b>"], [false, undefined, undefined], [true, "21", undefined]]);
  assert.deepEqual([r.text, r.html, r.svg, r.markdown, r.latex, r.json], ["21", "<b>new</b>", "<svg/>", "m", "l", { a: [1] }]);
  assert.deepEqual([r.png, r.jpeg, r.pdf], [Uint8Array.of(0, 255), Uint8Array.of(1), Uint8Array.of(2)]);
  assert.deepEqual([r.results[2].omitted, r.results[1].data["image/png"]], [["text/html"], "AP8="]);
  assert.deepEqual(seen.map((s) => (typeof s === "string" ? s : (s.html ?? s.text ?? "image"))), ["a", "w", "<b>old</b>", "<b>new</b>", "image", "21", "b"]);
});

test("figures and data frames are data", async (t) => {
  const chart = { type: "line", title: "T", elements: [] };
  const table = { schema: {}, data: [{ a: 1 }], total_rows: 1, total_columns: 1 };
  const plot = { main: false, data: { "text/plain": "<Figure>", "application/vnd.modbox.chart+json": chart } };
  const frame = { main: true, data: { "application/vnd.dataresource+json": table } };
  const { sbx } = await withSandbox(t, (_, res) => sendEvents(res, started, { type: "result", result: plot }, { type: "result", result: frame }, end));
  const r = await sbx.runCode("x");
  assert.deepEqual([r.chart, r.table], [chart, table]);
  assert.deepEqual(r.results.map((v) => [v.chart, v.table]), [[chart, undefined], [undefined, table]]);
});

test("text is the main value's only", async (t) => {
  const { sbx } = await withSandbox(t, (_, res) => sendEvents(res, started, { type: "result", result: { main: false, data: { "text/plain": "shown" } } }, end));
  const r = await sbx.runCode("x");
  assert.deepEqual([r.text, r.results[0].text, r.png, r.json], [undefined, "shown", undefined, undefined]);
});

test("code that fails is no error; a failure of the run and a broken stream are", async (t) => {
  const error = { name: "ZeroDivisionError", value: "division by zero", traceback: ["l1", "l2"] };
  const answers = [
    [started, { type: "error", error }, { ...end, status: "error" }],
    [started, { type: "failure", code: "agent_unreachable", message: "gone" }],
    [started],
  ];
  const { sbx } = await withSandbox(t, (_, res, n) => sendEvents(res, ...answers[n]));
  const r = await sbx.runCode("1/0");
  assert.deepEqual([r.status, r.error], ["error", error]);
  await assert.rejects(sbx.runCode("x"), (err) => err instanceof ModboxError && err.code === "agent_unreachable" && err.message === "gone");
  await assert.rejects(sbx.runCode("x"), { code: "connection" });
});

test("a callback that throws ends the request", async (t) => {
  let closed;
  const gone = new Promise((done) => (closed = done));
  const { sbx } = await withSandbox(t, (_, res) => {
    res.on("close", closed);
    res.write(`${JSON.stringify({ type: "stdout", text: "x" })}\n`);
  });
  await assert.rejects(sbx.runCode("x", { onStdout: () => { throw new Error("mine"); } }), /mine/);
  await gone;
});

test("contexts are chosen by id or record", async (t) => {
  const { sbx, requests } = await withSandbox(t, (r, res) => {
    if (r.path.endsWith("/code/stream")) return sendEvents(res, started, end);
    if (r.method === "GET") return json(res, { items: [context] });
    if (r.method === "DELETE" || r.path.endsWith("/interrupt")) return res.writeHead(204).end();
    json(res, context);
  });
  const c = await sbx.contexts.create({ language: "bash", cwd: "/tmp", env: { A: "1" } });
  assert.deepEqual(requests[1].json(), { language: "bash", cwd: "/tmp", env: { A: "1" } });
  assert.deepEqual([c.id, c.createdAt], ["c1", "2026-01-01T00:00:00Z"]);
  await sbx.runCode("x", { context: c });
  await sbx.runCode("x", { context: "c2" });
  await sbx.runCode("x", { language: "r" });
  assert.deepEqual(requests.slice(2).map((r) => r.json()), [{ code: "x", context_id: "c1" }, { code: "x", context_id: "c2" }, { code: "x", language: "r" }]);
  assert.deepEqual((await sbx.contexts.list().all()).map((x) => x.id), ["c1"]);
  await sbx.contexts.interrupt(c);
  await sbx.contexts.restart("c1");
  await sbx.contexts.delete(c);
  const path = `/v1/sandboxes/${id}/contexts/c1`;
  assert.deepEqual(requests.slice(-3).map((r) => [r.method, r.path]), [["POST", `${path}/interrupt`], ["POST", `${path}/restart`], ["DELETE", path]]);
});

test("the client's runCode is one request", async (t) => {
  const body = {
    context_id: "python", restarted: true, status: "error", execution_count: 1, duration_ms: 2, stdout: "o", stderr: "e", truncated: true,
    results: [{ main: true, data: { "text/plain": "21" } }], error: { name: "E", value: "v", traceback: [] },
  };
  const s = await serve(t, (_, res) => json(res, body));
  const r = await s.client().sandboxes.runCode("a", "x", { contextId: "python" });
  assert.deepEqual([s.requests[0].path, s.requests[0].json()], ["/v1/sandboxes/a/code", { code: "x", context_id: "python" }]);
  assert.deepEqual([r.text, r.status, r.restarted, r.error.name, r.truncated, r.durationMs], ["21", "error", true, "E", true, 2]);
});
