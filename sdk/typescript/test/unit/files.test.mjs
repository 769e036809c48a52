import assert from "node:assert/strict";
import { test } from "node:test";
import { ModboxError, ValidationError } from "modbox-sdk";
import { json, problem, serve } from "../server.mjs";

test("files: many at once, text and bytes of any size", async (t) => {
  const s = await serve(t, (_, res) => json(res, { count: 3 }));
  const large = new Uint8Array(100_000).map((_, i) => i);
  await s.client().sandboxes.files.writeMany("a/b", [
    { path: "/ü", content: "grün", mode: "0755" },
    { path: "/large", content: large },
    { path: "/empty", content: "" },
  ]);
  const [r] = s.requests;
  assert.equal(`${r.method} ${r.path}`, "POST /v1/sandboxes/a%2Fb/files/batch");
  const { files } = r.json();
  assert.deepEqual(files[0], { path: "/ü", content: Buffer.from("grün").toString("base64"), mode: "0755" });
  assert.deepEqual(new Uint8Array(Buffer.from(files[1].content, "base64")), large);
  assert.deepEqual(files[2], { path: "/empty", content: "" });
});

test("files: archives pass unchanged both ways", async (t) => {
  const content = new Uint8Array([0x1f, 0x8b, 0, 255]);
  const s = await serve(t, (r, res) => {
    if (r.method === "PUT") return res.writeHead(204).end();
    res.writeHead(200, { "content-type": "application/zip" }).end(content);
  });
  const { files } = s.client().sandboxes;
  await files.uploadArchive("a", "/w", content, { format: "tar.gz", keepLinks: true });
  await files.uploadArchive("a", "/w", new Blob([content]).stream());
  const chunks = [];
  for await (const chunk of await files.downloadArchive("a", "/w", { format: "zip" })) chunks.push(chunk);
  assert.deepEqual(new Uint8Array(Buffer.concat(chunks)), content);
  const paths = s.requests.map((r) => `${r.method} ${r.path}?${r.query}`);
  assert.deepEqual(paths, [
    "PUT /v1/sandboxes/a/files/archive?path=%2Fw&format=tar.gz&keep_links=true",
    "PUT /v1/sandboxes/a/files/archive?path=%2Fw",
    "GET /v1/sandboxes/a/files/archive?path=%2Fw&format=zip",
  ]);
  assert.deepEqual(new Uint8Array(s.requests[1].body), content);
});

test("files: a hostile archive is a ValidationError", async (t) => {
  const s = await serve(t, (_, res) => problem(res, 422, "invalid"));
  await assert.rejects(s.client().sandboxes.files.uploadArchive("a", "/w", new Uint8Array([1])), ValidationError);
});

/** A server that answers a watch with these lines, in pieces that do not respect them. */
function watched(t, ...lines) {
  return serve(t, async (_, res) => {
    res.writeHead(200, { "content-type": "application/x-ndjson" });
    const text = lines.map((l) => `${JSON.stringify(l)}\n`).join("");
    for (let i = 0; i < text.length; i += 7) {
      res.write(text.slice(i, i + 7));
      await new Promise(setImmediate);
    }
    res.end();
  });
}

test("files: a watch tells events until the directory is gone", async (t) => {
  const s = await watched(
    t,
    { type: "ready" },
    { type: "created", path: "/w/d", directory: true },
    { type: "ping" },
    { type: "from the future" },
    { type: "overflow" },
    { type: "moved_to", path: "/w/ü" },
    { type: "ended" },
  );
  const events = [];
  for await (const e of await s.client().sandboxes.files.watch("a", "/w", { recursive: true })) events.push(e);
  assert.deepEqual(events, [
    { type: "created", path: "/w/d", directory: true },
    { type: "overflow" },
    { type: "moved_to", path: "/w/ü", directory: false },
  ]);
  assert.equal(`${s.requests[0].path}?${s.requests[0].query}`, "/v1/sandboxes/a/files/watch?path=%2Fw&recursive=true");
});

test("files: a watch that breaks off throws", async (t) => {
  const cut = await watched(t, { type: "ready" }, { type: "created", path: "/w/d" });
  const events = await cut.client().sandboxes.files.watch("a", "/w");
  assert.equal((await events.next()).value.path, "/w/d");
  await assert.rejects(events.next(), (err) => err instanceof ModboxError && err.code === "connection");

  const ended = await watched(t, { type: "ready" }, { type: "error", code: "ended", message: "it has ended" });
  await assert.rejects((await ended.client().sandboxes.files.watch("a", "/w")).next(), (err) => err instanceof ModboxError && err.code === "ended");

  const silent = await watched(t);
  await assert.rejects(silent.client().sandboxes.files.watch("a", "/w"), (err) => err instanceof ModboxError && err.code === "connection");
});
