// What the scenario cannot say. Needs a server: MODBOX_URL and MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { ModboxClient } from "modbox-sdk";

let client;
let id;

before(async () => {
  client = new ModboxClient();
  id = (await client.sandboxes.create({ image: "modbox/code-exec", ttlSeconds: 3600, waitSeconds: 600 })).id;
});
after(() => id && client.sandboxes.delete(id));

/** Polls until the condition holds. */
async function eventually(condition, what) {
  for (const end = Date.now() + 300_000; Date.now() < end; ) {
    if (await condition()) return;
  }
  assert.fail(`${what} did not happen`);
}

const runs = async (name) => (await client.sandboxes.exec(id, { shell: `pgrep -f '^${name}' || true` })).stdout !== "";

test("output comes while the command runs, and leaving the loop kills it", async () => {
  let sawOutput = false;
  for await (const e of client.sandboxes.execStream(id, { shell: "echo first; exec -a left-early sleep 3000" })) {
    if (e.type !== "stdout") continue;
    sawOutput = true;
    assert.equal(Buffer.from(e.data).toString(), "first\n");
    break;
  }
  assert(sawOutput);
  await eventually(async () => !(await runs("left-early")), "the end of the command");
});

test("an abort kills the command", async () => {
  const controller = new AbortController();
  const exec = client.sandboxes.exec(id, { shell: "exec -a aborted sleep 3000", signal: controller.signal, timeoutSeconds: 2000 });
  exec.catch(() => {});
  await eventually(() => runs("aborted"), "the start of the command");
  controller.abort();
  await assert.rejects(exec, { name: "AbortError" });
  await eventually(async () => !(await runs("aborted")), "the end of the command");
});

test("64 MiB go in and come out as streams, unchanged", async () => {
  const size = 64 << 20;
  const up = createHash("sha256");
  let sent = 0;
  const content = new ReadableStream({
    pull(controller) {
      const chunk = new Uint8Array(1 << 20).fill(sent >> 20);
      sent += chunk.length;
      up.update(chunk);
      controller.enqueue(chunk);
      if (sent === size) controller.close();
    },
  });
  const signal = AbortSignal.timeout(900_000); // a transfer that hangs should say so before its sandbox ends
  const info = await client.sandboxes.files.write(id, "/tmp/big", content, { signal });
  assert.equal(info.sizeBytes, size);
  const sum = up.digest("hex");
  const down = createHash("sha256");
  for await (const chunk of await client.sandboxes.files.readStream(id, "/tmp/big", { signal })) down.update(chunk);
  assert.equal(down.digest("hex"), sum);
  const inside = await client.sandboxes.exec(id, { shell: "sha256sum < /tmp/big" });
  assert.equal(inside.stdout.split(" ")[0], sum);
});
