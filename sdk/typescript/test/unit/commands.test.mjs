import assert from "node:assert/strict";
import { test } from "node:test";
import { CommandError, ModboxError, NotFoundError, Sandbox } from "modbox-sdk";
import { json, serve, wireSandbox } from "../server.mjs";

const { id } = wireSandbox();

async function withSandbox(t, answer) {
  const s = await serve(t, (r, res, n) => (n === 0 ? json(res, wireSandbox(), 201) : answer(r, res, n - 1)));
  return { ...s, sbx: await Sandbox.create({ client: s.client() }) };
}

const result = (more = {}) => ({
  exit_code: 0, signal: 0, timed_out: false, stdout: "out", stderr: "", stdout_truncated: false, stderr_truncated: false, duration_ms: 4, ...more,
});

const base64 = (bytes) => Buffer.from(bytes).toString("base64");

function sendEvents(res, ...events) {
  res.end(events.map((e) => `${JSON.stringify(e)}\n`).join(""));
}

const execution = (more = {}) => ({
  id: "e1", sandbox_id: id, kind: "job", command: ["sh"], state: "running", tty: false, one_shot: false, cancelling: false, stdin_stream_id: "in",
  stdout: { stream_id: "so", size_bytes: 3, truncated: false }, stderr: { stream_id: "se", size_bytes: 0, truncated: false },
  created_by: "u", created_at: "2026-01-01T00:00:00Z", duration_ms: 7, ...more,
});

test("run gives a string to a shell and a list to the program", async (t) => {
  const { sbx, requests } = await withSandbox(t, (_, res) => json(res, result()));
  const r = await sbx.run("ls | wc -l", { cwd: "/tmp", env: { A: "1" }, user: "root", stdin: "in", timeoutSeconds: 5 });
  assert.deepEqual(r, { exitCode: 0, timedOut: false, stdout: "out", stderr: "", stdoutTruncated: false, stderrTruncated: false, durationMs: 4 });
  await sbx.commands.run(["ls", "-l"]);
  assert.equal(requests[1].path, `/v1/sandboxes/${id}/exec`);
  assert.deepEqual(requests[1].json(), { shell: "ls | wc -l", cwd: "/tmp", env: { A: "1" }, user: "root", stdin: "in", timeout_seconds: 5 });
  assert.deepEqual(requests[2].json(), { command: ["ls", "-l"] });
});

test("the error of a command has the ends of both outputs", async (t) => {
  const long = "x".repeat(600);
  const ends = [
    [{ stdout: "why\n", stderr: "" }, ": why"],
    [{ stdout: " ", stderr: "" }, ""],
    [{ stdout: "why", stderr: long }, `: ${long.slice(0, 500)}`],
    [{ stdout: long, stderr: "no" }, `: no\nstdout: ${long.slice(0, 498)}`],
  ];
  const { sbx } = await withSandbox(t, (_, res, n) => json(res, result({ ...ends[n][0], exit_code: 1 })));
  for (const [, said] of ends) {
    await assert.rejects(sbx.run("false", { check: true }), (err) => {
      assert.equal(err.message, `command "false" ended with exit code 1${said}`);
      return true;
    });
  }
});

test("a command that fails is an error with check only", async (t) => {
  const ends = [{ exit_code: 3, stderr: "no\n" }, { exit_code: 3, stderr: "no\n" }, { exit_code: 0, timed_out: true }];
  const { sbx } = await withSandbox(t, (_, res, n) => json(res, result(ends[n])));
  assert.equal((await sbx.run("false")).exitCode, 3);
  await assert.rejects(sbx.run("false", { check: true }), (err) => {
    assert(err instanceof CommandError && err instanceof ModboxError);
    assert.deepEqual([err.code, err.result.exitCode, err.message], ["command_failed", 3, 'command "false" ended with exit code 3: no\nstdout: out']);
    return true;
  });
  await assert.rejects(sbx.run("false", { check: true }), /was killed at its timeout/);
});

test("run calls back with whole characters, and keeps no more than its limit", async (t) => {
  const euro = [0xe2, 0x82, 0xac];
  const { sbx, requests } = await withSandbox(t, (_, res) =>
    sendEvents(
      res,
      { type: "started", pid: 1 },
      { type: "stdout", data: base64(euro.slice(0, 1)) },
      { type: "stderr", data: base64("e") },
      { type: "stdout", data: base64([...euro.slice(1), 0x61]) },
      { type: "stdout", data: base64(euro.slice(0, 2)) }, // never completed
      { type: "exit", exit_code: 1, duration_ms: 9 },
    ),
  );
  const [out, err] = [[], []];
  const onStdout = async (text) => {
    await new Promise((done) => setTimeout(done, 1));
    out.push(text);
  };
  const r = await sbx.run("x", { onStdout, onStderr: (text) => err.push(text) });
  assert.deepEqual([out, err], [["€a", "\ufffd"], ["e"]]);
  assert.deepEqual(r, { exitCode: 1, timedOut: false, stdout: "€a\ufffd", stderr: "e", stdoutTruncated: false, stderrTruncated: false, durationMs: 9 });
  const short = await sbx.run("x", { onStdout: () => undefined, maxOutputBytes: 4 });
  assert.deepEqual([short.stdout, short.stdoutTruncated, short.stderrTruncated], ["€a", true, false]);
  assert(requests.slice(1).every((q) => q.path.endsWith("/exec/stream") && !("max_output_bytes" in q.json())));
});

test("long commands are streamed, so that no proxy gives up", async (t) => {
  const { sbx, requests } = await withSandbox(t, (_, res) => sendEvents(res, { type: "exit", exit_code: 0, duration_ms: 1 }));
  await sbx.run("x", { timeoutSeconds: 900 });
  assert.equal(requests[1].path, `/v1/sandboxes/${id}/exec/stream`);
});

test("a callback that throws ends the command", async (t) => {
  let closed;
  const gone = new Promise((done) => (closed = done));
  const { sbx } = await withSandbox(t, (r, res) => {
    res.on("close", closed);
    res.write(`${JSON.stringify({ type: "stdout", data: base64("x") })}\n`);
  });
  await assert.rejects(sbx.run("x", { onStdout: () => { throw new Error("mine"); } }), /mine/);
  await gone;
});

test("start begins a job; write and closeStdin are its input", async (t) => {
  const { sbx, requests } = await withSandbox(t, (r, res) => (r.method === "PUT" ? res.end() : json(res, execution())));
  const command = await sbx.commands.start("cat", { stdin: true, cwd: "/tmp" });
  assert.deepEqual(requests[1].json(), { shell: "cat", kind: "job", stdin: true, cwd: "/tmp" });
  await command.write("a\n");
  await command.closeStdin();
  const puts = requests.filter((r) => r.method === "PUT").map((r) => [r.path, r.query.get("eof"), r.body.toString()]);
  assert.deepEqual(puts, [["/v1/streams/in", "false", "a\n"], ["/v1/streams/in", null, ""]]);
  await sbx.commands.start(["cat"], { stdin: "all" });
  assert.deepEqual([requests.at(-1).path, requests.at(-1).body.toString(), requests.at(-2).json().stdin], ["/v1/streams/in", "all", true]);
});

test("a command without input refuses it, and a command that cannot be started throws", async (t) => {
  const answers = [execution({ stdin_stream_id: undefined }), execution({ state: "failed", error: "no program nope" })];
  const { sbx } = await withSandbox(t, (_, res, n) => json(res, answers[n]));
  const command = await sbx.commands.start("x");
  await assert.rejects(command.write("a"), { code: "conflict" });
  await assert.rejects(sbx.commands.start(["nope"]), (err) => err instanceof CommandError && err.result === undefined && /no program nope/.test(err.message));
});

test("output merges both streams as text, and leaving it closes them", async (t) => {
  let closed = 0;
  const { sbx } = await withSandbox(t, (r, res, n) => {
    if (n === 0) return json(res, execution());
    res.on("close", () => closed++);
    if (r.path.endsWith("/so")) {
      res.write(Buffer.from([0xe2, 0x82]));
      return void setTimeout(() => res.write(Buffer.from([0xac])), 20); // and stays open
    }
    res.write("err");
    if (r.query.get("follow") !== "true") res.end();
  });
  const command = await sbx.commands.start("x");
  const seen = {};
  for await (const { stream, text } of command.output()) {
    seen[stream] = (seen[stream] ?? "") + text;
    if (seen.stdout && seen.stderr) break;
  }
  assert.deepEqual(seen, { stdout: "€", stderr: "err" });
  while (closed < 2) await new Promise((done) => setImmediate(done));
  await new Promise((done) => setTimeout(done, 20)); // a rejection that nobody handles would fail the test
});

test("wait gives the result; a lost exit code is an error", async (t) => {
  const ended = execution({ state: "failed", exit_code: 2, ended_at: "2026-01-01T00:00:01Z", stderr: { stream_id: "se", size_bytes: 2, truncated: true } });
  const { sbx } = await withSandbox(t, (r, res, n) => {
    if (r.path.startsWith("/v1/streams/")) return res.end(r.path.endsWith("so") ? "out" : "er");
    json(res, n === 0 ? execution() : r.query.has("wait_seconds") && n < 8 ? ended : execution({ state: "failed", error: "its sandbox ended" }));
  });
  const command = await sbx.commands.start("x");
  assert.deepEqual(await command.wait(), {
    exitCode: 2, timedOut: false, stdout: "out", stderr: "er", stdoutTruncated: false, stderrTruncated: true, durationMs: 7,
  });
  assert.equal(command.info.exitCode, 2);
  await assert.rejects(command.wait({ check: true, maxOutputBytes: 1 }), (err) => err.result.stdout === "o" && err.result.stdoutTruncated);
  await command.refresh();
  await assert.rejects(command.wait(), (err) => err instanceof CommandError && err.result === undefined && /its sandbox ended/.test(err.message));
});

test("kill cancels, with force for SIGKILL", async (t) => {
  const { sbx, requests } = await withSandbox(t, (_, res) => json(res, execution()));
  const command = await sbx.commands.get("e1");
  await command.kill();
  await command.kill("SIGKILL");
  assert.deepEqual(requests.slice(2).map((r) => [r.path, r.json().force]), [["/v1/executions/e1/cancel", false], ["/v1/executions/e1/cancel", true]]);
});

test("list walks over the pages of jobs, and get knows the sandbox's own only", async (t) => {
  const { sbx, requests } = await withSandbox(t, (r, res) => {
    if (r.path === "/v1/executions/other") return json(res, execution({ id: "other", sandbox_id: "s2" }));
    const last = r.query.get("cursor") === "c";
    json(res, { items: [execution({ id: last ? "e2" : "e1" })], next_cursor: last ? undefined : "c" });
  });
  assert.deepEqual((await sbx.commands.list().all()).map((c) => c.id), ["e1", "e2"]);
  assert.deepEqual(requests.slice(1).map((r) => r.query.get("kind")), ["job", "job"]);
  await assert.rejects(sbx.commands.get("other"), NotFoundError);
});

test("main is the newest main command, if there is one", async (t) => {
  const { sbx, requests } = await withSandbox(t, (r, res) => json(res, { items: requests.length > 2 ? [] : [execution({ id: "e1", kind: "main" })] }));
  assert.equal((await sbx.commands.main()).id, "e1");
  assert.deepEqual([requests[1].query.get("kind"), requests[1].query.get("limit")], ["main", "1"]);
  await assert.rejects(sbx.commands.main(), NotFoundError);
});
