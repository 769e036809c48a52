import assert from "node:assert/strict";
import { test } from "node:test";
import { ConflictError, ModboxError, ValidationError } from "modbox-sdk";
import { json, problem, serve } from "../server.mjs";

const provisioned = { success: true, error: null, sandbox_id: "id-1", sandbox_url: null, status: "provisioning" };
const detail = {
  id: "id-1",
  name: "a b",
  status: "provisioning",
  sandbox_url: null,
  image: "modbox/code-exec:latest",
  created_by: "u",
  created_at: "2026-01-01T00:00:00Z",
  updated_at: "2026-01-01T00:00:00Z",
  destroyed_at: null,
};

test("provisionSandbox sends what was given and nothing else", async (t) => {
  const s = await serve(t, (_, res) => json(res, provisioned));
  const got = await s.client({ workspaceId: "w-1" }).provisionSandbox({
    taskId: "a",
    imageId: undefined,
    ttlSeconds: 60,
    envVars: { SESSION_ID: "1" },
  });
  assert.deepEqual(got, { sandboxId: "id-1", sandboxUrl: "", status: "provisioning" });
  const [r] = s.requests;
  assert.equal(`${r.method} ${r.path}`, "POST /sandboxes/provision");
  assert.deepEqual(r.json(), { task_id: "a", ttl_seconds: 60, env_vars: { SESSION_ID: "1" } });
  assert.equal(r.headers.authorization, "Bearer mbx_test");
  assert.equal(r.headers["x-workspace-id"], "w-1");
  assert.equal(r.headers["content-type"], "application/json");
});

test("a no in a successful answer is an error", async (t) => {
  const s = await serve(t, (_, res) => json(res, { ...provisioned, success: false, error: "no room" }));
  await assert.rejects(s.client().provisionSandbox({ taskId: "a" }), (err) => {
    assert(err instanceof ModboxError);
    assert.match(err.message, /provision a: no room/);
    return true;
  });
});

test("waitForSandbox outlasts the client's time limit", async (t) => {
  const s = await serve(t, (_, res) => setTimeout(() => json(res, { ready: true, elapsed_seconds: 0.2 }), 200));
  const got = await s.client({ timeoutMs: 20 }).waitForSandbox({ taskId: "a", timeout: 30 });
  assert.equal(got.ready, true);
  assert.deepEqual(s.requests[0].json(), { task_id: "a", timeout: 30 });
});

test("waitForSandbox makes several requests of a long wait", async (t) => {
  const s = await serve(t, (_, res, n) => json(res, { ready: n === 1, status: n === 1 ? "running" : "provisioning" }));
  const got = await s.client().waitForSandbox({ taskId: "a", timeout: 600 });
  assert.equal(got.ready, true);
  assert.equal(s.requests.length, 2);
  for (const r of s.requests) assert.equal(r.json().timeout, 240);
});

test("waitForSandbox returns when the sandbox has ended", async (t) => {
  const s = await serve(t, (_, res) => json(res, { ready: false, status: "destroyed" }));
  assert.equal((await s.client().waitForSandbox({ taskId: "a", timeout: 600 })).ready, false);
  assert.equal(s.requests.length, 1);
});

test("getSandbox takes any name, and a missing URL is empty", async (t) => {
  const s = await serve(t, (_, res) => json(res, detail));
  const got = await s.client().getSandbox("a b/c");
  assert.equal(s.requests[0].path, "/sandboxes/detail/a%20b%2Fc");
  assert.equal(got.sandboxUrl, "");
  assert.equal(got.createdAt, "2026-01-01T00:00:00Z");
  assert.equal(got.destroyedAt, null);
});

test("destroySandbox, listSandboxes, listSandboxImages", async (t) => {
  const image = {
    id: "i", name: "modbox/code-exec", image: "modbox/code-exec", tag: "latest", description: null, enabled: true,
    is_default: true, memory_mb: 512, readiness_port: null, ttl_seconds: null, created_at: "c", updated_at: "u",
  };
  const s = await serve(t, (r, res) => {
    if (r.path === "/sandboxes/destroy") return json(res, { success: false, error: "there is none" });
    if (r.path === "/sandboxes") return json(res, { sandboxes: [detail], total: 1 });
    return json(res, { images: [image], total: 1 });
  });
  const client = s.client();
  assert.deepEqual(await client.destroySandbox({ taskId: "a" }), { success: false, error: "there is none" });
  const list = await client.listSandboxes({ status: "running" });
  assert.equal(s.requests[1].query.get("status"), "running");
  assert.deepEqual([list.total, list.sandboxes[0].name], [1, "a b"]);
  const [got] = await client.listSandboxImages();
  assert.deepEqual([got.isDefault, got.memoryMb, got.readinessPort], [true, 512, null]);
});

test("errors of this API keep field and code", async (t) => {
  const s = await serve(t, (_, res, n) => {
    if (n === 0) return json(res, { detail: [{ loc: ["body", "ttl_seconds"], msg: "must be at least 60", type: "x" }] }, 422);
    return json(res, { detail: "task a is taken", code: "exists" }, 409);
  });
  await assert.rejects(s.client().provisionSandbox({ taskId: "a", ttlSeconds: 1 }), (err) => {
    assert(err instanceof ValidationError);
    assert.equal(err.field, "ttl_seconds");
    assert.equal(err.status, 422);
    assert.match(err.message, /ttl_seconds: must be at least 60/);
    return true;
  });
  await assert.rejects(s.client().provisionSandbox({ taskId: "a" }), (err) => {
    assert(err instanceof ConflictError);
    assert.equal(err.code, "exists");
    assert.equal(err.message, "task a is taken");
    return true;
  });
});

test("provisioning is tried again when the server is unavailable", async (t) => {
  const s = await serve(t, (_, res, n) => (n === 0 ? problem(res, 503, "unavailable") : json(res, provisioned)));
  assert.equal((await s.client().provisionSandbox({ taskId: "a" })).sandboxId, "id-1");
  assert.equal(s.requests.length, 2);
});
