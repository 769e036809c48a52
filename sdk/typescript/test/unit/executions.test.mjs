import assert from "node:assert/strict";
import { test } from "node:test";
import { FileNotFoundError, ModboxError, NotFoundError, ProgramNotFoundError, TimeoutError } from "modbox-sdk";
import { json, problem, serve, wireSandbox } from "../server.mjs";

const wireExecution = (more = {}) => ({
  id: "e", sandbox_id: "s", kind: "exec", command: ["true"], state: "running", tty: false, one_shot: false,
  cancelling: false, stdout: { stream_id: "str_1", size_bytes: 0, truncated: false },
  stderr: { stream_id: "", size_bytes: 0, truncated: false }, created_by: "u", created_at: "2026-01-01T00:00:00Z",
  duration_ms: 0, ...more,
});

/** Answers a stream's bytes from the offset on, but breaks off after `limit` of them. */
function answerStream(request, res, text, limit) {
  const rest = Buffer.from(text).subarray(Number(request.query.get("offset") ?? 0));
  res.writeHead(200, { "content-type": "application/octet-stream" });
  if (limit === undefined) return res.end(rest);
  res.write(rest.subarray(0, limit), () => setImmediate(() => res.destroy()));
}

async function text(chunks) {
  const list = [];
  for await (const chunk of chunks) list.push(chunk);
  return Buffer.concat(list).toString();
}

test("start sends the wire's names and is never sent twice", async (t) => {
  const s = await serve(t, (_, res, n) => (n === 0 ? json(res, wireExecution(), 201) : res.destroy()));
  const { executions } = s.client();
  const e = await executions.start("a", {
    command: ["cat"], kind: "job", files: [{ path: "/a", content: "hi" }], timeoutSeconds: 5, stdin: true, tty: { rows: 24, cols: 80 }, waitSeconds: 9,
  });
  assert.deepEqual(s.requests[0].json(), {
    command: ["cat"], kind: "job", files: [{ path: "/a", content: "aGk=" }], timeout_seconds: 5, stdin: true, tty: { rows: 24, cols: 80 }, wait_seconds: 9,
  });
  assert.deepEqual([e.stdinStreamId, e.error, e.exitCode, e.stdout.streamId], [undefined, undefined, undefined, "str_1"]);
  await assert.rejects(executions.start("a", { shell: "x" }), { code: "connection" });
  assert.equal(s.requests.length, 2);
});

test("wait is several requests, and says when the time is over", async (t) => {
  const s = await serve(t, (_, res, n) => json(res, wireExecution({ state: n === 1 ? "cancelled" : "running" })));
  const { executions } = s.client();
  assert.equal((await executions.wait("e", { timeoutSeconds: 400 })).state, "cancelled");
  assert.deepEqual(s.requests.map((r) => r.query.get("wait_seconds")), ["240", "240"]);
  await assert.rejects(executions.wait("e", { timeoutSeconds: 0 }), TimeoutError);
});

test("logs go on where the connection broke", async (t) => {
  const s = await serve(t, (r, res, n) => {
    if (r.path === "/v1/executions/e") return json(res, wireExecution());
    answerStream(r, res, "0123456789", n < 4 ? 3 : undefined);
  });
  assert.equal(await text(s.client().executions.logs("e", { offset: 1, follow: true })), "123456789");
  assert.deepEqual(s.requests.slice(1).map((r) => r.query.get("offset")), ["1", "4", "7", "10"].slice(0, s.requests.length - 1));
  assert(s.requests.slice(1).every((r) => r.query.get("follow") === "true"));
});

test("a stream that breaks at once is given up, and one with times at the first break", async (t) => {
  const s = await serve(t, (r, res) => answerStream(r, res, "0123456789", r.query.get("timestamps") ? 3 : 0));
  const { streams } = s.client();
  await assert.rejects(text(streams.read("x", { follow: true })), (err) => err instanceof ModboxError && err.code === "connection");
  assert.equal(s.requests.length, 4);
  await assert.rejects(text(streams.read("x", { timestamps: true })), { code: "connection" });
  assert.equal(s.requests.length, 5);
});

test("an abort ends a stream", async (t) => {
  const s = await serve(t, (_, res) => res.writeHead(200).write("a"));
  const controller = new AbortController();
  const read = async () => {
    for await (const _ of s.client().streams.read("x", { follow: true, signal: controller.signal })) controller.abort();
  };
  await assert.rejects(read(), { name: "AbortError" });
  assert.equal(s.requests.length, 1);
});

test("an output that is not kept", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireExecution()));
  await assert.rejects(text(s.client().executions.logs("e", { output: "stderr" })), NotFoundError);
});

test("writing to a stream says whether it ends", async (t) => {
  const s = await serve(t, (_, res) => res.writeHead(204).end());
  const { streams } = s.client();
  await streams.write("x", "a", { end: false });
  await streams.write("x", "b");
  assert.deepEqual(s.requests.map((r) => [r.method, r.query.get("eof"), r.body.toString()]), [["PUT", "false", "a"], ["PUT", null, "b"]]);
});

test("fork tells what became of each child", async (t) => {
  const s = await serve(t, (_, res) => json(res, { forks: [{ sandbox: wireSandbox({ parent_id: "p" }) }, { error: { code: "quota_exceeded", detail: "too many" } }] }));
  const [one, two] = await s.client().sandboxes.fork("a", { count: 2, names: ["x"], timeouts: { idleSeconds: 5, onIdle: "pause" }, waitForQuotaSeconds: 30 });
  assert.deepEqual(s.requests[0].json(), { count: 2, names: ["x"], timeouts: { idle_seconds: 5, on_idle: "pause" }, wait_for_quota_seconds: 30 });
  assert.deepEqual([one.sandbox.parentId, one.error, two.sandbox], ["p", undefined, undefined]);
  assert(two.error instanceof ModboxError);
  assert.deepEqual([two.error.code, two.error.message], ["quota_exceeded", "too many"]);
});

test("a list is a page when it is awaited, and all items when it is iterated over", async (t) => {
  const events = [1, 2, 3].map((seq) => ({ seq, sandbox_id: "s", time: "2026-01-01T00:00:00Z", type: "exec", message: "" }));
  const s = await serve(t, (r, res) => {
    const first = Number(r.query.get("cursor") ?? 0);
    const next = first + Number(r.query.get("limit"));
    json(res, { items: events.slice(first, next), next_cursor: next < events.length ? String(next) : undefined });
  });
  const seqs = (list) => list.map((e) => e.seq);
  const { sandboxes } = s.client();
  const walked = [];
  for await (const e of sandboxes.events("a", { limit: 2, afterSeq: 7 })) walked.push(e);
  assert.deepEqual(seqs(walked), [1, 2, 3]);
  assert.deepEqual(s.requests.map((r) => r.query.toString()), ["after_seq=7&limit=2", "after_seq=7&limit=2&cursor=2"]);

  const list = sandboxes.events("a", { limit: 2 });
  assert.equal(s.requests.length, 2, "nothing is asked for before it is needed");
  const page = await list;
  assert.deepEqual([seqs(page.items), page.nextCursor], [[1, 2], "2"]);
  const last = await page.next();
  assert.deepEqual([seqs(last.items), last.nextCursor, await last.next()], [[3], undefined, undefined]);
  assert.deepEqual(seqs(await list.all()), [1, 2, 3]);
  assert.equal(s.requests.length, 5, "the first page is asked for once");
  assert.deepEqual(seqs((await sandboxes.events("a", { limit: 2, cursor: "2" })).items), [3]);
});

test("an error of a list is thrown where it is awaited or iterated over", async (t) => {
  const s = await serve(t, (_, res) => problem(res, 404, "not_found"));
  await assert.rejects(s.client().executions.list("a"), NotFoundError);
  await assert.rejects(s.client().executions.list("a").all(), NotFoundError);
  await assert.rejects(async () => {
    for await (const _ of s.client().executions.list("..")); // no reference
  }, /".."/);
});

test("a missing file and a missing program are errors of their own classes", async (t) => {
  const s = await serve(t, (r, res) => problem(res, 404, r.path.endsWith("/exec") ? "program_not_found" : "file_not_found"));
  const { sandboxes } = s.client();
  await assert.rejects(sandboxes.exec("a", { command: ["none"] }), ProgramNotFoundError);
  await assert.rejects(sandboxes.files.stat("a", "/none"), FileNotFoundError);
  await assert.rejects(sandboxes.files.stat("a", "/none"), NotFoundError);
});
