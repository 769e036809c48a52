import assert from "node:assert/strict";
import { test } from "node:test";
import { AuthError } from "modbox-sdk";
import { json, problem, serve } from "../server.mjs";

const wireEvent = (seq) => ({ seq, sandbox_id: "s", sandbox_name: "a", time: "2026-01-01T00:00:00Z", type: "exec", message: "m", data: { exit_code: "0" } });
const message = (seq) => `id: ${seq}\ndata: ${JSON.stringify(wireEvent(seq))}\n\n`;

function stream(res, text) {
  res.writeHead(200, { "content-type": "text/event-stream" });
  res.end(text);
}

test("events: follow goes on after its last message over any number of connections", async (t) => {
  const answers = [
    (res) => stream(res, `retry: 1000\nid: 4\n\n${message(5)}id: 6\ndata: {`),
    (res) => stream(res, ": ping\nid: 9\n\n"),
    (res) => problem(res, 503, "unavailable"),
    (res) => stream(res, `${message(10)}event: problem\ndata: {"code":"unauthenticated","detail":"revoked"}\n\n`),
  ];
  const s = await serve(t, (_, res, n) => answers[n](res));
  const seen = [];
  await assert.rejects(async () => {
    for await (const e of s.client().events.follow({ sandbox: "a", types: ["exec", "created"], afterSeq: 3 })) seen.push([e.seq, e.sandboxName]);
  }, AuthError);
  assert.deepEqual(seen, [[5, "a"], [10, "a"]]);
  assert.deepEqual(s.requests.map((r) => r.headers["last-event-id"]), ["3", "5", "9", "9"]);
  assert.equal(`${s.requests[0].path}?${s.requests[0].query}`, "/v1/events/stream?sandbox=a&type=exec&type=created");
});

test("events: the first connection of follow must work", async (t) => {
  const s = await serve(t, (_, res) => problem(res, 403, "forbidden"));
  await assert.rejects(s.client().events.follow().next(), AuthError);
  assert.equal(s.requests.length, 1);
});

test("events: leaving the loop and a signal end follow", async (t) => {
  const s = await serve(t, (_, res) => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.write(message(1) + message(2));
  });
  for await (const e of s.client().events.follow()) {
    assert.equal(e.seq, 1);
    break;
  }
  const abort = new AbortController();
  const reason = new Error("enough");
  await assert.rejects(
    async () => {
      for await (const e of s.client().events.follow({ since: new Date(0), signal: abort.signal })) if (e.seq === 2) abort.abort(reason);
    },
    (err) => err === reason,
  );
});

test("events: list", async (t) => {
  const s = await serve(t, (_, res) => json(res, { items: [wireEvent(1)] }));
  const [event] = await s.client().events.list({ types: ["exec"], order: "desc", since: "2026-01-01T00:00:00Z", limit: 5 }).all();
  assert.equal(event.data.exit_code, "0");
  assert.equal(`${s.requests[0].path}?${s.requests[0].query}`, "/v1/events?type=exec&since=2026-01-01T00%3A00%3A00Z&order=desc&limit=5");
});
