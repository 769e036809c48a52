import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { inspect } from "node:util";
import { AuthError, ConnectionError, EndedError, ModboxClient, ModboxError, Sandbox, TimeoutError, ValidationError } from "modbox-sdk";
import { json, problem, serve, wireSandbox } from "../server.mjs";

test("a problem becomes an error of its class", async (t) => {
  const s = await serve(t, (_, res, n) => {
    if (n === 0) return problem(res, 422, "invalid", { errors: [{ location: "resources.memory", message: "too small" }] });
    if (n === 1) return problem(res, 401, "unauthenticated");
    if (n === 2) return problem(res, 410, "ended");
    return problem(res, 507, "disk_full");
  });
  const get = () => s.client().sandboxes.get("a");
  await assert.rejects(get, (err) => {
    assert(err instanceof ValidationError);
    assert.deepEqual(
      [err.name, err.code, err.status, err.field, err.requestId, err.message],
      ["ValidationError", "invalid", 422, "resources.memory", "r-1", "it is invalid"],
    );
    return true;
  });
  await assert.rejects(get, AuthError);
  await assert.rejects(get, EndedError);
  await assert.rejects(get, (err) => err instanceof ModboxError && err.code === "disk_full");
});

test("an answer that is no problem is told by its status", async (t) => {
  const s = await serve(t, (_, res) => res.writeHead(413, { "content-type": "text/html" }).end("<h1>no</h1>"));
  await assert.rejects(s.client().sandboxes.get("a"), (err) => err.code === "too_large" && err.status === 413);
});

test("what is not JSON is a bad answer", async (t) => {
  const s = await serve(t, (_, res) => res.end("hello"));
  await assert.rejects(s.client().sandboxes.get("a"), (err) => err.code === "bad_response");
});

test("reads are repeated while the server is unavailable, and no further", async (t) => {
  const s = await serve(t, (_, res, n) => (n < 2 ? problem(res, 503, "unavailable") : json(res, wireSandbox())));
  assert.equal((await s.client().sandboxes.get("a")).name, "a");
  assert.equal(s.requests.length, 3);

  const down = await serve(t, (_, res) => problem(res, 503, "unavailable"));
  await assert.rejects(down.client({ maxRetries: 1 }).sandboxes.get("a"), (err) => err.code === "unavailable");
  assert.equal(down.requests.length, 2);
});

test("a broken connection is repeated, a refusal is not", async (t) => {
  const s = await serve(t, (_, res, n) => (n === 0 ? res.destroy() : json(res, wireSandbox())));
  await s.client().sandboxes.get("a");
  assert.equal(s.requests.length, 2);

  const full = await serve(t, (_, res) => problem(res, 429, "quota_exceeded"));
  await assert.rejects(full.client().sandboxes.get("a"), (err) => err.code === "quota_exceeded");
  assert.equal(full.requests.length, 1);
});

test("no answer in time is a TimeoutError", async (t) => {
  const s = await serve(t, () => {});
  await assert.rejects(s.client({ timeoutMs: 100 }).sandboxes.get("a"), TimeoutError);
  assert(s.requests.length <= 1, "it was sent again"); // a busy machine may not have got it at all
});

test("no server is a ConnectionError that names it", async (t) => {
  const client = new ModboxClient({ token: "mbx_x", baseUrl: "http://127.0.0.1:1", maxRetries: 0 });
  await assert.rejects(client.whoami(), (err) => err instanceof ConnectionError && err.message.includes("http://127.0.0.1:1"));
});

test("the caller's abort stays the caller's", async (t) => {
  const controller = new AbortController();
  const s = await serve(t, () => controller.abort(new Error("mine")));
  await assert.rejects(s.client().sandboxes.get("a", { signal: controller.signal }), { message: "mine" });
  assert.equal(s.requests.length, 1);
});

test("redirects are not followed with the token", async (t) => {
  const s = await serve(t, (_, res) => res.writeHead(307, { location: "http://127.0.0.1:1/" }).end());
  await assert.rejects(s.client({ maxRetries: 0 }).sandboxes.get("a"), ConnectionError);
});

test("token and server come from the environment", async (t) => {
  const s = await serve(t, (_, res) => json(res, { user_id: "u", workspace_id: "w", token_id: "t" }));
  const before = { ...process.env };
  t.after(() => {
    process.env = before;
  });
  delete process.env.MODBOX_API_TOKEN;
  assert.throws(() => new ModboxClient(), AuthError);
  process.env.MODBOX_API_TOKEN = "mbx_env";
  process.env.MODBOX_URL = s.baseUrl + "/";
  await new ModboxClient().whoami();
  assert.equal(s.requests[0].path, "/v1/whoami");
  assert.equal(s.requests[0].headers.authorization, "Bearer mbx_env");
});

test("the address of the server needs a scheme", () => {
  const hint = { code: "invalid", message: 'baseUrl (MODBOX_URL) "127.0.0.1:7070" is not an http or https URL; write http://127.0.0.1:7070 or https://127.0.0.1:7070' };
  assert.throws(() => new ModboxClient({ token: "mbx_x", baseUrl: "127.0.0.1:7070" }), hint);
  for (const baseUrl of ["", "ftp://host", "http://", "https:host"]) {
    assert.throws(() => new ModboxClient({ token: "mbx_x", baseUrl }), ValidationError, baseUrl);
  }
});

test("no token is in what a program prints", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox()));
  const session = { accessToken: "mbx_test", refreshToken: "mbx_test2", expiresAt: "2099-01-01T00:00:00Z", refreshExpiresAt: "2099-01-01T00:00:00Z" };
  for (const client of [s.client(), s.client({ token: undefined, session })]) {
    const sbx = await Sandbox.connect("a", { client });
    assert.equal(s.requests.at(-1).headers.authorization, "Bearer mbx_test");
    for (const text of [JSON.stringify(sbx), inspect(sbx, { depth: 20, showHidden: true })]) {
      assert(text.includes(s.baseUrl) && !text.includes("mbx_test"), text);
    }
  }
});

test("another fetch can carry the requests", async () => {
  const seen = [];
  const fetch = async (url) => {
    seen.push(url);
    return new Response(JSON.stringify({ version: "1", driver: "x" }));
  };
  const client = new ModboxClient({ token: "mbx_x", baseUrl: "http://there/base", fetch });
  assert.equal((await client.version()).version, "1");
  assert.deepEqual(seen, ["http://there/base/v1/version"]);
});

test("the package can be required", () => {
  const required = createRequire(import.meta.url)("modbox-sdk");
  assert.equal(typeof required.ModboxClient, "function");
  assert.notEqual(required.ModboxClient, ModboxClient);
});
