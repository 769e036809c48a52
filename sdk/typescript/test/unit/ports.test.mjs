import assert from "node:assert/strict";
import { test } from "node:test";
import { ConflictError } from "modbox-sdk";
import { json, problem, serve, wireSandbox } from "../server.mjs";

const wire = { port: 3000, url: "https://p3000-x.example.com", access: "private", created_at: "2026-01-01T00:00:00Z" };
const port = { port: 3000, url: "https://p3000-x.example.com", access: "private", createdAt: "2026-01-01T00:00:00Z" };

test("ports: every call", async (t) => {
  const s = await serve(t, (r, res) => {
    if (r.method === "DELETE") return res.writeHead(204).end();
    if (r.path.endsWith("/links")) return json(res, { url: "https://p3000-x.example.com/?t", token: "mbl_x", expires_at: "e" }, 201);
    return json(res, r.method === "GET" ? { items: [wire] } : wire);
  });
  const { ports } = s.client().sandboxes;
  assert.deepEqual(await ports.list("a b").all(), [port]);
  assert.deepEqual(await ports.publish("a", 3000, { access: "private" }), port);
  await ports.publish("a", 3000);
  assert.deepEqual(await ports.rotate("a", 3000), port);
  assert.deepEqual(await ports.createLink("a", 3000, { expiresInSeconds: 60 }), { url: "https://p3000-x.example.com/?t", token: "mbl_x", expiresAt: "e" });
  await ports.createLink("a", 3000);
  await ports.unpublish("a", 3000);
  assert.deepEqual(
    s.requests.map((r) => [r.method, r.path, r.body.toString()]),
    [
      ["GET", "/v1/sandboxes/a%20b/ports", ""],
      ["PUT", "/v1/sandboxes/a/ports/3000", '{"access":"private"}'],
      ["PUT", "/v1/sandboxes/a/ports/3000", "{}"],
      ["POST", "/v1/sandboxes/a/ports/3000/rotate", ""],
      ["POST", "/v1/sandboxes/a/ports/3000/links", '{"expires_in_seconds":60}'],
      ["POST", "/v1/sandboxes/a/ports/3000/links", "{}"],
      ["DELETE", "/v1/sandboxes/a/ports/3000", ""],
    ],
  );
});

test("ports: publish is tried again, the calls that make or end something are not", async (t) => {
  const s = await serve(t, (_, res, n) => (n === 1 ? json(res, wire) : problem(res, 503, "unavailable")));
  const { ports } = s.client().sandboxes;
  await ports.publish("a", 3000);
  assert.equal(s.requests.length, 2);
  for (const call of [() => ports.rotate("a", 3000), () => ports.createLink("a", 3000), () => ports.unpublish("a", 3000)]) {
    const before = s.requests.length;
    await assert.rejects(call(), (err) => err.code === "unavailable");
    assert.equal(s.requests.length, before + 1);
  }
});

test("ports: a link to a public port is a conflict", async (t) => {
  const s = await serve(t, (_, res) => problem(res, 409, "conflict"));
  await assert.rejects(s.client().sandboxes.ports.createLink("a", 3000), ConflictError);
});

test("a sandbox says what it publishes and what its URL asks for", async (t) => {
  const answer = wireSandbox({ url_access: "open", network: { enabled: false, ports: [wire], allow_out: ["example.com"], deny_out: ["0.0.0.0/0"], request_host: "localhost", https_ports: [8443] } });
  const s = await serve(t, (_, res) => json(res, answer, 201));
  const sandbox = await s.client().sandboxes.create({ urlAccess: "open", network: { ports: [3000], requestHost: "localhost", httpsPorts: [8443] } });
  assert.deepEqual(s.requests[0].json(), { url_access: "open", network: { ports: [3000], request_host: "localhost", https_ports: [8443] } });
  assert.deepEqual([sandbox.urlAccess, sandbox.network], ["open", { enabled: false, ports: [port], allowOut: ["example.com"], denyOut: ["0.0.0.0/0"], requestHost: "localhost", httpsPorts: [8443] }]);
});

test("a workspace can ask for a key on all URLs", async (t) => {
  const workspace = { id: "w", name: "n", slug: "s", url_access: "key", created_at: "t", updated_at: "t", members: [] };
  const s = await serve(t, (_, res) => json(res, workspace));
  assert.equal((await s.client().workspaces.update("w", { urlAccess: "key" })).urlAccess, "key");
  assert.deepEqual(s.requests[0].json(), { url_access: "key" });
});

test("a workspace has a policy for code", async (t) => {
  const workspace = { id: "w", name: "n", slug: "s", url_access: "open", code_scan: "block", code_scan_rules: ["eval"], created_at: "t", updated_at: "t", members: [] };
  const s = await serve(t, (_, res) => json(res, workspace));
  const changed = await s.client().workspaces.update("w", { codeScan: "block", codeScanRules: ["eval"] });
  assert.deepEqual([changed.codeScan, changed.codeScanRules], ["block", ["eval"]]);
  assert.deepEqual(s.requests[0].json(), { code_scan: "block", code_scan_rules: ["eval"] });
});

test("a workspace can have outputs in its audit log", async (t) => {
  const workspace = { id: "w", name: "n", slug: "s", url_access: "open", audit_output: true, created_at: "t", updated_at: "t", members: [] };
  const s = await serve(t, (_, res) => json(res, workspace));
  assert.equal((await s.client().workspaces.update("w", { auditOutput: true })).auditOutput, true);
  assert.deepEqual(s.requests[0].json(), { audit_output: true });
});
