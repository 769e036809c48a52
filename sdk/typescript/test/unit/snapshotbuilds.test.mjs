import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectionError, NotFoundError, ValidationError } from "modbox-sdk";
import { json, problem, serve } from "../server.mjs";

const snapshot = { id: "b", name: "n", full_name: "@w/n", image: "i", size_bytes: 1, layer_bytes: 1, file_count: 1, public: false, created_at: "t" };

/** The n-th line of a log. */
const line = (n, phase = "installing") => ({ time: `t${n}`, phase, message: `line ${n}` });

async function collect(iterable) {
  const list = [];
  for await (const item of iterable) list.push(item);
  return list;
}

/**
 * A server of one build. `looks` says what it is at, from one look to the next, the last for good: a `progress`, and a `log`.
 * Its finish is answered by `finish` when it was looked at as often as there are looks.
 */
async function building(t, looks, finish) {
  let looked = 0;
  let seen;
  const enough = new Promise((resolve) => (seen = resolve));
  let came;
  const finishing = new Promise((resolve) => (came = resolve));
  return serve(t, async (r, res) => {
    if (r.method === "PUT") return res.writeHead(204).end();
    if (r.path === "/v1/snapshots/b") return json(res, snapshot);
    if (r.path.endsWith("/snapshot-builds")) return json(res, { id: "b", unchanged: false }, 201);
    if (r.path.endsWith("/progress")) {
      await finishing; // which it may overtake
      return json(res, { id: "b", ...looks[Math.min(looked, looks.length - 1)].progress });
    }
    if (r.path.endsWith("/log")) {
      const { log, truncated = false } = looks[Math.min(looked, looks.length - 1)];
      json(res, { lines: log, truncated, ended: log.at(-1).phase === "done" });
      if (++looked >= looks.length) seen();
      return;
    }
    assert.equal(r.path, "/v1/snapshot-builds/b/finish");
    came();
    if (finish === undefined) return; // never
    await enough;
    finish(res);
  });
}

const looks = [
  { progress: { phase: "installing", detail: "2 packages", done: 1, total: 2 }, log: [line(0, "begun"), line(1)] },
  { progress: { phase: "installing", detail: "2 packages", done: 1, total: 2 }, log: [line(0, "begun"), line(1), line(2)] },
  { progress: { phase: "done", detail: "it is" }, log: [line(0, "begun"), line(1), line(2), line(3, "done")] },
];

/** What is told of those looks, in short. */
const short = (e) => [e.type, e.phase ?? e.id ?? e.snapshot.id, e.type === "line" ? e.message : ""];
const told = [
  ["begun", "b", ""],
  ["progress", "uploading", ""],
  ["line", "begun", "line 0"],
  ["line", "installing", "line 1"],
  ["progress", "installing", ""],
  ["line", "installing", "line 2"],
  ["line", "done", "line 3"],
  ["done", "b", ""],
];

test("a build tells what happens in it, each thing once, and its end", async (t) => {
  const s = await building(t, looks, (res) => json(res, snapshot, 201));
  const events = await collect(s.client().snapshots.buildStream("base", { name: "n", files: "tgz", npmPackages: ["p"], pipPackages: ["q"], env: { A: "1" } }));
  assert.deepEqual(events.map(short), told);
  assert.deepEqual(events[2], { type: "line", time: "t0", phase: "begun", message: "line 0", truncated: false });
  assert.deepEqual(events[4], { type: "progress", phase: "installing", message: "2 packages", done: 1, total: 2 });
  assert.equal(events.at(-1).unchanged, false);
  assert.deepEqual(
    s.requests.filter((r) => r.method !== "GET").map((r) => [r.method, r.path, r.body.toString()]),
    [
      ["POST", "/v1/snapshot-builds", '{"name":"n","runtime":"base"}'],
      ["PUT", "/v1/snapshot-builds/b/files", "tgz"],
      ["POST", "/v1/snapshot-builds/b/finish", '{"npm_packages":["p"],"pip_packages":["q"],"env":{"A":"1"}}'],
    ],
  );
});

test("a build goes on without the answer to its finish", async (t) => {
  for (const lost of [(res) => res.destroy(), (res) => res.writeHead(504).end("a proxy's page")]) {
    // Nothing is told twice of what was seen before.
    const s = await building(t, looks, lost);
    const events = await collect(s.client().snapshots.buildStream("base", { files: "tgz" }));
    assert.deepEqual(events.map(short), told);
    assert.equal(s.requests.filter((r) => r.path.endsWith("/finish")).length, 1); // never sent twice
  }
});

test("a build that fails throws, with its id, also when the answer was lost", async (t) => {
  const failed = [{ progress: { phase: "failed", detail: "no such package" }, log: [line(0, "begun"), line(1, "failed")] }];
  const run = async (looks, finish) => {
    const s = await building(t, looks, finish);
    const events = [];
    try {
      for await (const e of s.client().snapshots.buildStream("base")) events.push(e);
    } catch (err) {
      return { err, phases: events.map((e) => e.phase ?? e.id) };
    }
    return assert.fail("the build did not fail");
  };
  const refused = await run(failed, (res) => problem(res, 422, "invalid", { errors: [{ location: "body.apt_packages[0]", message: "m" }] }));
  assert(refused.err instanceof ValidationError);
  assert.deepEqual([refused.err.message, refused.err.field], ["build b: it is invalid", "apt_packages[0]"]);
  assert.deepEqual(refused.phases, ["b", "begun", "failed"]);

  const lost = await run(failed, (res) => res.destroy());
  assert.deepEqual([lost.err.code, lost.err.message], ["internal", "build b: no such package"]);
  assert.deepEqual(lost.phases, ["b", "begun", "failed"]);

  // A finish that never came is none.
  const unheard = await run([{ progress: { phase: "begun" }, log: [line(0, "begun")] }], (res) => res.destroy());
  assert(unheard.err instanceof ConnectionError);

  // A server that says by itself that it cannot is believed.
  const unable = await run(failed, (res) => problem(res, 502, "agent_unreachable"));
  assert.equal(unable.err.code, "agent_unreachable");
});

test("what a build is at may fail to be had", async (t) => {
  let asked;
  const once = new Promise((resolve) => (asked = resolve));
  const s = await serve(t, async (r, res) => {
    if (r.method === "GET") {
      asked();
      return problem(res, 404, "not_found");
    }
    if (r.path.endsWith("/finish")) await once;
    json(res, r.path.endsWith("/finish") ? snapshot : { id: "b", unchanged: false }, 201);
  });
  assert.deepEqual((await collect(s.client().snapshots.buildStream("base"))).map((e) => e.type), ["begun", "done"]);
});

test("nothing to build is told by the end alone", async (t) => {
  const s = await serve(t, (_, res) => json(res, { unchanged: true, snapshot }));
  const events = await collect(s.client().snapshots.buildStream("base", { contentHash: "h" }));
  assert.deepEqual(events.map((e) => [e.type, e.unchanged, e.snapshot.id]), [["done", true, "b"]]);
});

test("leaving a build, or aborting it, ends its requests", async (t) => {
  for (const leave of ["break", "abort"]) {
    const gone = [];
    const s = await building(t, looks.slice(0, 1));
    const aborter = new AbortController();
    const run = async () => {
      for await (const e of s.client().snapshots.buildStream("base", { signal: aborter.signal })) {
        if (e.type !== "line") continue;
        const finish = s.requests.find((r) => r.path.endsWith("/finish"));
        gone.push(new Promise((resolve) => finish.raw.socket.once("close", resolve)));
        if (leave === "break") break;
        aborter.abort(new Error("enough"));
      }
    };
    if (leave === "break") await run();
    else await assert.rejects(run, /enough/);
    assert(gone.length > 0);
    await Promise.all(gone);
  }
});

test("a log is followed until it ends, though its beginning is lost", async (t) => {
  const window = (from, to) => Array.from({ length: to - from }, (_, i) => line(from + i));
  const logs = [
    { lines: window(0, 2), truncated: false, ended: false },
    { lines: window(1, 4), truncated: true, ended: false }, // overlaps
    { lines: window(9, 11), truncated: true, ended: false }, // what was between is gone
    { lines: [...window(9, 11), line(11, "failed")], truncated: true, ended: true },
  ];
  // A connection that breaks is taken up again where it was.
  const s = await serve(t, (_, res, n) => (n === 1 ? res.destroy() : json(res, logs[n === 0 ? 0 : n - 1])));
  const lines = await collect(s.client().snapshots.buildLog("b", { follow: true }));
  assert.deepEqual(
    lines.map((l) => (l.truncated ? "… " : "") + l.message),
    ["line 0", "line 1", "line 2", "line 3", "… line 9", "line 10", "line 11"],
  );
  assert.equal(lines.at(-1).phase, "failed");
  assert(s.requests.every((r) => r.path === "/v1/snapshot-builds/b/log"));
});

test("a log is read as it is, and a build looked at", async (t) => {
  const s = await serve(t, (r, res) => {
    if (r.path.includes("/none/")) return problem(res, 404, "not_found");
    json(res, r.path.endsWith("/log") ? { lines: [line(5)], truncated: true, ended: false } : { id: "b", phase: "pulling", done: 3 });
  });
  const { snapshots } = s.client();
  assert.deepEqual(await collect(snapshots.buildLog("b")), [{ ...line(5), truncated: true }]);
  assert.deepEqual(await snapshots.buildProgress("b"), { phase: "pulling", message: "", done: 3, total: undefined });
  await assert.rejects(snapshots.buildProgress("none"), NotFoundError);
  await assert.rejects(collect(snapshots.buildLog("none", { follow: true })), NotFoundError);
});
