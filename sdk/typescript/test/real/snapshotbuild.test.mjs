// Builds of snapshots. Needs a server: MODBOX_URL and MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ModboxClient, ValidationError } from "modbox-sdk";

const client = new ModboxClient();
const name = (kind) => `ts-${kind}-${process.pid}-${Date.now()}`;

/** A tar.gz of one file. */
function packed(file, text) {
  const dir = mkdtempSync(join(tmpdir(), "build-"));
  try {
    writeFileSync(join(dir, file), text);
    return execFileSync("tar", ["-C", dir, "-cz", file], { stdio: ["ignore", "pipe", "inherit"] });
  } finally {
    rmSync(dir, { recursive: true });
  }
}

async function collect(iterable) {
  const list = [];
  for await (const item of iterable) list.push(item);
  return list;
}

/** The lines among the events of a build, as its log has them. */
const lines = (events) => events.filter((e) => e.type === "line").map(({ type, ...line }) => line);

test("a build tells its log, which others may follow, and its end", async () => {
  const events = [];
  let followed;
  const files = packed("a.txt", "here\n");
  for await (const e of client.snapshots.buildStream("modbox/base", { name: name("built"), files, dir: "/srv", aptPackages: ["hello"] })) {
    events.push(e);
    if (e.type === "begun") followed = collect(client.snapshots.buildLog(e.id, { follow: true }));
  }
  const { snapshot, unchanged } = events.at(-1);
  assert.equal(unchanged, false);
  assert.equal(events[0].id, snapshot.id);
  assert.deepEqual(lines(events), await followed);
  assert.deepEqual(await collect(client.snapshots.buildLog(snapshot.id)), await followed);
  assert.deepEqual([lines(events)[0].phase, lines(events).at(-1).phase], ["begun", "done"]);
  assert.equal((await client.snapshots.buildProgress(snapshot.id)).phase, "done");

  const sandbox = await client.sandboxes.create({ snapshot: snapshot.id, ttlSeconds: 3600, waitSeconds: 600 });
  try {
    const { stdout } = await client.sandboxes.exec(sandbox.id, { shell: "cat /srv/a.txt; hello" });
    assert.equal(stdout, "here\nHello, world!\n");
  } finally {
    await client.sandboxes.delete(sandbox.id);
    await client.snapshots.delete(snapshot.id);
  }
});

test("a build goes on when the connection of its finish breaks", async () => {
  // The finish arrives, and then its connection breaks.
  const losing = async (url, init) => {
    if (!url.endsWith("/finish")) return fetch(url, init);
    const cut = new AbortController();
    const answer = fetch(url, { ...init, signal: cut.signal }).catch(() => undefined);
    const id = url.split("/").at(-2);
    while ((await client.snapshots.buildProgress(id)).phase === "begun");
    cut.abort();
    await answer;
    throw new TypeError("fetch failed");
  };
  const events = await collect(new ModboxClient({ fetch: losing }).snapshots.buildStream("modbox/base", { name: name("lost"), env: { A: "1" } }));
  const { type, snapshot } = events.at(-1);
  assert.equal(type, "done");
  assert.deepEqual(lines(events), await collect(client.snapshots.buildLog(snapshot.id)));
  assert.equal((await client.snapshots.get(snapshot.id)).id, snapshot.id);
  await client.snapshots.delete(snapshot.id);
});

test("a build that fails throws what its log ends with", async () => {
  const events = [];
  const run = async () => {
    for await (const e of client.snapshots.buildStream("no-such-image", { name: name("failed"), env: { A: "1" } })) events.push(e);
  };
  const { id } = await run().then(
    () => assert.fail("the build did not fail"),
    (err) => {
      assert(err instanceof ValidationError);
      assert.equal(err.field, "runtime");
      assert(err.message.startsWith(`build ${events[0].id}: `), err.message);
      return events[0];
    },
  );
  const log = await collect(client.snapshots.buildLog(id, { follow: true }));
  assert.equal(log.at(-1).phase, "failed");
  assert.match(log.at(-1).message, /no-such-image/);
  assert.deepEqual(await client.snapshots.buildProgress(id), { phase: "failed", message: log.at(-1).message, done: 0, total: undefined });
  await assert.rejects(client.snapshots.buildProgress("none"), { code: "not_found" });
});
