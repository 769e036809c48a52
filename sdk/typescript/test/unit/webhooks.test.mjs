import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { test } from "node:test";
import { verifyWebhook, WebhookError } from "modbox-sdk";
import { Webhook } from "standardwebhooks";
import { json, serve } from "../server.mjs";

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const event = { seq: 7, sandbox_id: "s", sandbox_name: "my-agent", time: "2026-01-01T00:00:00Z", type: "failed", message: "é", data: { cause: "oom" } };
const body = JSON.stringify({ type: "failed", timestamp: "2026-01-01T00:00:00Z", data: event });

/** The headers of a delivery, signed by the library of Standard Webhooks. */
function headers(at = new Date(), text = body, key = secret) {
  return { "webhook-id": "msg_1", "webhook-timestamp": String(Math.floor(at.getTime() / 1000)), "webhook-signature": new Webhook(key).sign("msg_1", at, text) };
}

test("webhooks: a delivery that Standard Webhooks signed is valid", async () => {
  for (const given of [headers(), new Headers(headers()), { "Webhook-Id": "msg_1", ...Object.fromEntries(Object.entries(headers()).map(([k, v]) => [k.toUpperCase(), v])) }]) {
    for (const content of [body, new TextEncoder().encode(body), Buffer.from(body)]) {
      const message = await verifyWebhook(given, content, secret);
      assert.deepEqual([message.id, message.type, message.timestamp], ["msg_1", "failed", "2026-01-01T00:00:00Z"]);
      assert.equal(message.event.sandboxName, "my-agent");
      assert.equal(message.event.data.cause, "oom");
    }
  }
  const ping = JSON.stringify({ type: "ping", timestamp: "2026-01-01T00:00:00Z", data: {} });
  assert.equal((await verifyWebhook(headers(new Date(), ping), ping, [secret])).event, undefined);
  assert.equal((await verifyWebhook(headers(), body, [other, secret])).id, "msg_1");
  const several = { ...headers(), "webhook-signature": `v1a,AAAA v1,x ${new Webhook(other).sign("msg_1", new Date(), body)} ${headers()["webhook-signature"]}` };
  assert.equal((await verifyWebhook(several, body, secret)).id, "msg_1");
});

test("webhooks: every other request is a WebhookError", async () => {
  const minutes = (n) => new Date(Date.now() + n * 60_000);
  const cases = {
    "another body": [headers(), `${body} `, secret],
    "another secret": [headers(), body, other],
    "no secret": [headers(), body, []],
    "another id": [{ ...headers(), "webhook-id": "msg_2" }, body, secret],
    "another time": [{ ...headers(), "webhook-timestamp": String(Math.floor(Date.now() / 1000) - 100) }, body, secret],
    "an old delivery": [headers(minutes(-6)), body, secret],
    "a delivery of the future": [headers(minutes(6)), body, secret],
    "a time of letters": [{ ...headers(), "webhook-timestamp": "now" }, body, secret],
    "another version": [{ ...headers(), "webhook-signature": headers()["webhook-signature"].replace("v1,", "v2,") }, body, secret],
    "a signature twice as long": [{ ...headers(), "webhook-signature": headers()["webhook-signature"] + headers()["webhook-signature"] }, body, secret],
    "no JSON": [headers(new Date(), "text"), "text", secret],
    "no event": [headers(new Date(), "{}"), "{}", secret],
  };
  for (const name of Object.keys(headers())) cases[`without ${name}`] = [{ ...headers(), [name]: undefined }, body, secret];
  for (const [name, args] of Object.entries(cases)) await assert.rejects(verifyWebhook(...args), WebhookError, name);
  for (const bad of ["", "whsec_", "whsec_é"]) {
    await assert.rejects(verifyWebhook(headers(), body, bad), (err) => err instanceof TypeError && !err.message.includes("é"));
  }
});

test("webhooks: the receiver of docs/webhooks.md", async (t) => {
  const page = readFileSync(new URL("../../../../docs/webhooks.md", import.meta.url), "utf8");
  const example = /^```ts\n(.*?)^```$/ms.exec(page)[1].replace(/^(import |receiver\.listen).*\n/gm, "");
  const handled = [];
  const make = new Function("createServer", "verifyWebhook", "process", "handle", `${example}; return receiver;`);
  const server = make(createServer, verifyWebhook, { env: { MODBOX_WEBHOOK_SECRET: secret } }, (message) => handled.push(message));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const post = (h) => fetch(`http://127.0.0.1:${server.address().port}/`, { method: "POST", headers: { ...h, connection: "close" }, body });
  assert.equal((await post(headers())).status, 204);
  assert.equal((await post(headers(new Date(), body, other))).status, 401);
  assert.deepEqual(handled.map((m) => [m.id, m.event.seq]), [["msg_1", 7]]);
});

test("webhooks: calls", async (t) => {
  const hook = { id: "h 1", url: "https://a.example", types: [], enabled: true, pending: 0, dropped: 0, created_by: "u", created_at: "2026-01-01T00:00:00Z", updated_at: "2026-01-01T00:00:00Z" };
  const delivery = { id: "d1", webhook_id: "h 1", type: "ping", state: "delivered", attempts: 1, created_at: "2026-01-01T00:00:00Z", duration_ms: 4 };
  const answers = [{ ...hook, secret }, { items: [hook] }, hook, hook, undefined, { ...hook, secret }, delivery, { items: [delivery] }, delivery, delivery];
  const s = await serve(t, (_, res, n) => (answers[n] === undefined ? res.writeHead(204).end() : json(res, answers[n])));
  const { webhooks } = s.client();
  assert.equal((await webhooks.create({ url: hook.url, types: ["created"] })).secret, secret);
  assert.equal((await webhooks.list().all())[0].description, "");
  assert.equal((await webhooks.get("h 1")).url, hook.url);
  await webhooks.update("h 1", { enabled: false, types: [] });
  await webhooks.delete("h 1");
  assert.equal((await webhooks.rotate("h 1", { overlapSeconds: 60 })).secret, secret);
  assert.equal((await webhooks.test("h 1")).durationMs, 4);
  assert.equal((await webhooks.deliveries("h 1", { state: "failed", limit: 5 }).all())[0].webhookId, "h 1");
  assert.equal((await webhooks.delivery("h 1", "d1", { waitSeconds: 9 })).state, "delivered");
  assert.equal((await webhooks.redeliver("h 1", "d1")).id, "d1");
  assert.deepEqual(
    s.requests.map((r) => `${r.method} ${r.path.replace("/v1/webhooks", "")} ${r.query} ${r.body}`.trim()),
    [
      `POST   {"url":"https://a.example","types":["created"]}`, "GET", "GET /h%201", `PATCH /h%201  {"enabled":false,"types":[]}`, "DELETE /h%201",
      `POST /h%201/rotate  {"overlap_seconds":60}`, "POST /h%201/test", "GET /h%201/deliveries state=failed&limit=5", "GET /h%201/deliveries/d1 wait_seconds=9",
      "POST /h%201/deliveries/d1/redeliver",
    ],
  );
});
