// A sandbox from its creation to its end, in whatever runtime executes this file. Needs a server: MODBOX_URL and
// MODBOX_API_TOKEN. The last line is "ok".
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import { CommandError, FileNotFoundError, Modbox, NotFoundError, Sandbox, verifyWebhook, WebhookError } from "modbox-sdk";

const client = new Modbox({ baseUrl: process.env.MODBOX_URL, token: process.env.MODBOX_API_TOKEN });
const image = "modbox/code-exec";
let id;
await Sandbox.with({ client, image, env: { GREETING: "grüezi" }, ttlSeconds: 600 }, async (sbx) => {
  id = sbx.id;
  // Commands, their output as it comes, and their errors.
  let streamed = "";
  const result = await sbx.run("for i in 1 2 3; do echo $GREETING $i; done; echo err >&2; exit 3", { onStdout: (text) => (streamed += text) });
  assert.deepEqual([result.exitCode, result.stdout, result.stderr], [3, "grüezi 1\ngrüezi 2\ngrüezi 3\n", "err\n"]);
  assert.equal(streamed, result.stdout);
  await assert.rejects(sbx.run("exit 4", { check: true }), (err) => err instanceof CommandError && err.result.exitCode === 4);

  // Files: text, bytes, an error.
  await sbx.files.write("notes.txt", "größer\n");
  assert.equal(await sbx.files.read("notes.txt"), "größer\n");
  const bytes = new Uint8Array(1 << 20).map((_, i) => i % 251);
  await sbx.files.write("data.bin", bytes);
  const back = await sbx.files.readBytes("data.bin");
  assert.equal(back.length, bytes.length);
  assert.ok(back.every((byte, i) => byte === bytes[i]));
  await assert.rejects(sbx.files.read("missing"), FileNotFoundError);

  // Code that keeps its state.
  await sbx.runCode("let x = 20", { language: "javascript" });
  assert.equal((await sbx.runCode("x + 1", { language: "javascript" })).text, "21");

  // A command in the background, whose output is an iterator.
  const sort = await sbx.commands.start("sort; echo done", { stdin: true });
  await sort.write("b\na\n");
  await sort.closeStdin();
  let output = "";
  for await (const { text } of sort.output()) output += text;
  assert.equal(output, "a\nb\ndone\n");

  // A server by its URL, a pause, and the sandbox found again.
  await sbx.commands.start("python3 -m http.server 3000");
  await sbx.run("until curl -s -o /dev/null localhost:3000; do sleep 0.1; done");
  const page = await fetch(`${await sbx.url(3000)}/notes.txt`);
  assert.equal(await page.text(), "größer\n");
  await sbx.pause();
  const again = await Sandbox.connect(sbx.id, { client });
  assert.equal((await again.runCode("x", { language: "javascript" })).text, "20");
});
assert.equal((await client.sandboxes.get(id)).state, "destroyed");
await assert.rejects(Sandbox.connect("no-such-sandbox", { client }), NotFoundError);

// A receiver of webhooks: a delivery that it accepts, and others. The signature is made as Standard Webhooks says.
const key = Buffer.alloc(32, 7);
const secret = `whsec_${key.toString("base64")}`;
const event = { seq: 7, sandbox_id: "s", sandbox_name: "n", time: "2026-01-01T00:00:00Z", type: "failed", message: "é", data: { cause: "oom" } };
const body = JSON.stringify({ type: "failed", timestamp: "2026-01-01T00:00:00Z", data: event });
const signed = (text, at = Date.now(), by = key) => {
  const stamp = String(Math.floor(at / 1_000));
  const signature = createHmac("sha256", by).update(`msg_1.${stamp}.${text}`).digest("base64");
  return { "webhook-id": "msg_1", "webhook-timestamp": stamp, "webhook-signature": `v1,${signature}` };
};
const received = [];
const receiver = createServer(async (req, res) => {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  try {
    received.push(await verifyWebhook(req.headers, Buffer.concat(chunks), secret));
    res.statusCode = 204;
  } catch (err) {
    res.statusCode = err instanceof WebhookError ? 401 : 500;
  }
  res.end();
});
await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
const deliver = async (headers) => (await fetch(`http://127.0.0.1:${receiver.address().port}/`, { method: "POST", headers: { ...headers, connection: "close" }, body })).status;
assert.equal(await deliver(signed(body)), 204);
assert.equal(await deliver(signed(body, Date.now(), Buffer.alloc(32, 8))), 401);
assert.equal(await deliver(signed(body, Date.now() - 600_000)), 401);
assert.equal(await deliver(signed(`${body} `)), 401);
assert.deepEqual(received.map((m) => [m.id, m.type, m.event.sandboxName, m.event.message]), [["msg_1", "failed", "n", "é"]]);
receiver.close();
// The other kinds of headers and bodies.
for (const headers of [signed(body), new Headers(signed(body))]) {
  for (const content of [body, new TextEncoder().encode(body)]) {
    assert.equal((await verifyWebhook(headers, content, ["whsec_AAAA", secret])).event.data.cause, "oom");
  }
}
await assert.rejects(verifyWebhook({}, body, secret), WebhookError);
await assert.rejects(verifyWebhook(signed(body), body, "whsec_é"), TypeError);
console.log("ok");
