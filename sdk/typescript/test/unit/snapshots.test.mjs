import assert from "node:assert/strict";
import { test } from "node:test";
import { json, serve } from "../server.mjs";

const wire = { id: "p", name: "n", tag: "v1", full_name: "@default/n:v1", image: "i", size_bytes: 5, layer_bytes: 3, file_count: 2, public: false, created_at: "t", sandbox_id: "s" };

test("snapshots: every call", async (t) => {
  const s = await serve(t, (r, res) => {
    if (r.method === "DELETE") return res.writeHead(204).end();
    return json(res, r.path.endsWith("/snapshots") && r.method === "GET" || r.path.endsWith("/lineage") ? { items: [wire] } : wire);
  });
  const { snapshots } = s.client();
  const made = await snapshots.create("a b", { name: "n", tag: "v1", metadata: { some_key: "v" } });
  assert.deepEqual([made.fullName, made.sizeBytes, made.sandboxId, made.description, made.deletedAt], ["@default/n:v1", 5, "s", "", undefined]);
  await snapshots.get("@default/n:v1");
  assert.equal((await snapshots.list({ public: true, limit: 2 })).items[0].tag, "v1");
  await snapshots.tag("n", null);
  await snapshots.delete("p");
  assert.equal((await snapshots.lineage("p").all()).length, 1);
  await s.client().sandboxes.create({ snapshot: "n:v1" }).catch(() => {}); // the answer is no sandbox
  assert.deepEqual(
    s.requests.map((r) => [r.method, r.path, r.query.toString(), r.body.toString()]),
    [
      ["POST", "/v1/sandboxes/a%20b/snapshots", "", '{"name":"n","tag":"v1","metadata":{"some_key":"v"}}'],
      ["GET", "/v1/snapshots/%40default%2Fn%3Av1", "", ""],
      ["GET", "/v1/snapshots", "public=true&limit=2", ""],
      ["PATCH", "/v1/snapshots/n", "", '{"tag":null}'],
      ["DELETE", "/v1/snapshots/p", "", ""],
      ["GET", "/v1/snapshots/p/lineage", "", ""],
      ["POST", "/v1/sandboxes", "", '{"snapshot":"n:v1"}'],
    ],
  );
});
