import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { test } from "node:test";
import { ConnectionError, Modbox } from "modbox-sdk";

const content = new Uint8Array(1 << 20).map((_, i) => i % 251);
const info = { name: "f", path: "/f", type: "file", size_bytes: 3, mode: "0644", mod_time: "2026-01-01T00:00:00Z", uid: 0, gid: 0 };

/** A server that breaks the first connections in the middle of what is uploaded. */
async function cutting(t, cuts) {
  const seen = { requests: 0, bodies: [] };
  const server = createServer(async (req, res) => {
    if (++seen.requests <= cuts) return void req.once("data", () => req.socket.destroy());
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    seen.bodies.push(Buffer.concat(chunks));
    res.setHeader("content-type", "application/json").end(JSON.stringify(info));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { seen, files: new Modbox({ token: "t", baseUrl: `http://127.0.0.1:${server.address().port}` }).sandboxes.files };
}

const text = "grün ".repeat(100_000);
for (const [name, body, want] of [["bytes", content, content], ["a Blob", new Blob([content]), content], ["text", text, Buffer.from(text)]]) {
  for (const call of ["write", "uploadArchive"]) {
    test(`${call}: ${name} is sent again when the connection breaks`, async (t) => {
      const { seen, files } = await cutting(t, 2);
      await files[call]("a", "/f", body);
      assert.equal(seen.requests, 3);
      assert(seen.bodies.length === 1 && seen.bodies[0].equals(Buffer.from(want)));
    });
  }
}

test("a stream is not sent again", async (t) => {
  const { seen, files } = await cutting(t, 1);
  await assert.rejects(files.write("a", "/f", new Blob([content]).stream()), ConnectionError);
  assert.equal(seen.requests, 1);
});

test("an upload that always breaks is given up", async (t) => {
  const { seen, files } = await cutting(t, 100);
  await assert.rejects(files.write("a", "/f", content), ConnectionError);
  assert.equal(seen.requests, 4);
});
