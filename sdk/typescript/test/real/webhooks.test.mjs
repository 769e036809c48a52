// Deliveries of a server whose setting webhooks.allow_cidrs has 127.0.0.1. Needs MODBOX_URL and MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { ModboxClient, verifyWebhook, WebhookError } from "modbox-sdk";
import { Webhook } from "standardwebhooks";

test("webhooks: a delivery is valid for verifyWebhook and for Standard Webhooks, by each secret of a rotation", async (t) => {
  const { webhooks } = new ModboxClient();
  const requests = [];
  const receiver = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    requests.push({ headers: request.headers, body: Buffer.concat(chunks) });
    response.writeHead(204).end();
  });
  await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    receiver.closeAllConnections();
    receiver.close();
  });
  // Other tests of the workspace make events meanwhile; none of them is checkpoint_interval.
  const hook = await webhooks.create({ url: `http://127.0.0.1:${receiver.address().port}/`, types: ["checkpoint_interval"] });
  t.after(() => webhooks.delete(hook.id));
  const next = await webhooks.rotate(hook.id);
  const sent = await webhooks.test(hook.id);
  const done = await webhooks.delivery(hook.id, sent.id, { waitSeconds: 60 });
  assert.equal(done.state, "delivered", JSON.stringify(done));
  const { headers, body } = requests.find((r) => r.headers["webhook-id"] === sent.id);
  for (const secret of [hook.secret, next.secret]) {
    assert.equal((await verifyWebhook(headers, body, secret)).type, "ping");
    assert.equal(new Webhook(secret).verify(body.toString(), headers).type, "ping");
  }
  await assert.rejects(verifyWebhook(headers, `${body} `, next.secret), WebhookError);
  assert.equal((await webhooks.redeliver(hook.id, sent.id)).id, sent.id);
  assert.equal((await webhooks.delivery(hook.id, sent.id, { waitSeconds: 60 })).state, "delivered");
  assert.equal(requests.filter((r) => r.headers["webhook-id"] === sent.id).length, 2);
  assert.equal((await webhooks.update(hook.id, { enabled: false })).enabled, false);
  assert.ok((await webhooks.list().all()).some((w) => w.id === hook.id && !("secret" in w)));
});
