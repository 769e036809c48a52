import assert from "node:assert/strict";
import { test } from "node:test";
import { json, problem, serve, wireSandbox } from "../server.mjs";

/** A server that has no room for so many requests, and whose refusals come when the wait they ask for is over by the clock. */
async function full(t, refusals, answer = (_, res) => json(res, wireSandbox())) {
  let ms = Date.now();
  t.mock.method(Date, "now", () => ms);
  return serve(t, (req, res, n) => {
    if (n >= refusals) return answer(req, res);
    ms += req.json().wait_for_quota_seconds * 1_000;
    problem(res, 429, "quota_exceeded");
  });
}

const bodies = (s) => s.requests.filter((r) => r.method === "POST").map((r) => r.json());

test("a create may wait for quota; without it the error says when to try again", async (t) => {
  const s = await serve(t, (_, res, n) => {
    if (n === 0) return json(res, wireSandbox());
    res.setHeader("retry-after", "7");
    problem(res, 429, "quota_exceeded");
  });
  await s.client().sandboxes.create({ waitForQuotaSeconds: 60, waitSeconds: 180 });
  assert.deepEqual(s.requests[0].json(), { wait_for_quota_seconds: 60, wait_seconds: 180 });
  await assert.rejects(s.client().sandboxes.create(), (err) => err.code === "quota_exceeded" && err.retryAfterSeconds === 7);
});

test("a long wait for quota is several requests of one create", async (t) => {
  const s = await full(t, 2);
  await s.client().sandboxes.create({ name: "a", waitForQuotaSeconds: 600 });
  assert.deepEqual(bodies(s), [240, 240, 120].map((seconds) => ({ name: "a", wait_for_quota_seconds: seconds })));
  assert.equal(new Set(s.requests.map((r) => r.headers["idempotency-key"])).size, 1);
});

test("a long wait for quota ends with the time", async (t) => {
  const s = await full(t, Infinity);
  await assert.rejects(s.client().sandboxes.resume("a", { waitForQuotaSeconds: 480 }), (err) => err.code === "quota_exceeded");
  assert.deepEqual(bodies(s), [{ wait_for_quota_seconds: 240 }, { wait_for_quota_seconds: 240 }]);
});

test("what is refused at once is not asked for again", async (t) => {
  const s = await serve(t, (_, res) => problem(res, 429, "quota_exceeded"));
  await assert.rejects(s.client().sandboxes.create({ waitForQuotaSeconds: 600 }), (err) => err.code === "quota_exceeded");
  assert.equal(s.requests.length, 1);
});

test("what goes wrong otherwise is not asked for again", async (t) => {
  const s = await serve(t, (_, res) => problem(res, 404, "not_found"));
  await assert.rejects(s.client().sandboxes.fork("a", { waitForQuotaSeconds: 600 }), (err) => err.code === "not_found");
  assert.equal(s.requests.length, 1);
});

test("a long wait for quota and one until it runs are two requests", async (t) => {
  const s = await full(t, 1, (req, res) => json(res, wireSandbox({ state: req.method === "GET" ? "running" : "provisioning" })));
  const { state } = await s.client().sandboxes.create({ waitForQuotaSeconds: 300, waitSeconds: 200 });
  assert.equal(state, "running");
  assert.deepEqual(bodies(s), [{ wait_for_quota_seconds: 240 }, { wait_for_quota_seconds: 60 }]);
  const last = s.requests.at(-1);
  assert.deepEqual([last.path.endsWith("/wait"), last.query.get("state"), last.query.get("timeout_seconds")], [true, "running", "200"]);
});

test("a resume and a fork may wait for room", async (t) => {
  const s = await full(t, 1, (req, res) => json(res, req.path.endsWith("/fork") ? { forks: [] } : wireSandbox()));
  const { sandboxes } = s.client();
  await sandboxes.fork("a", { count: 2, waitForQuotaSeconds: 241 });
  await sandboxes.resume("a", { memory: "require", waitForQuotaSeconds: 30 });
  assert.deepEqual(bodies(s), [
    { count: 2, wait_for_quota_seconds: 240 },
    { count: 2, wait_for_quota_seconds: 1 },
    { memory: "require", wait_for_quota_seconds: 30 },
  ]);
});
