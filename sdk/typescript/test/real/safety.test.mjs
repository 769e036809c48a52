// CodeSandbox and SandboxPool, and the examples of docs/safety.md. Needs a server: MODBOX_URL and MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { CodeSandbox, Modbox, ModboxError, Sandbox, SandboxPool } from "modbox-sdk";

const page = readFileSync(new URL("../../../../docs/safety.md", import.meta.url), "utf8");

test("the examples of the page", async () => {
  const examples = [...page.matchAll(/^```js\n(.*?)^```$/gms)].map((m) => m[1]);
  assert.equal(examples.length, 4);
  const AsyncFunction = (async () => {}).constructor;
  for (const example of examples) {
    const printed = [];
    const told = [...example.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].map((m) => m[1]);
    // Run as it is, without a compiler: this Node has to understand it.
    const body = example.replace(/^import .*$/gm, "");
    const shown = { log: (...values) => printed.push(values.map((v) => (typeof v === "object" ? JSON.stringify(v) : String(v).trim())).join(" ")) };
    await new AsyncFunction("Sandbox", "CodeSandbox", "SandboxPool", "console", body)(Sandbox, CodeSandbox, SandboxPool, shown);
    const plain = (text) => text.replaceAll(/[" ]/g, "");
    for (const line of told) assert.ok(printed.some((p) => plain(p) === plain(line)), `${JSON.stringify(printed)} has no ${line}`);
  }
});

test("scopes close what they made, also on errors", async () => {
  let code, pool;
  await assert.rejects(CodeSandbox.with({}, async (sandbox) => {
    code = await sandbox.start();
    throw new Error("mine");
  }), /mine/);
  assert.equal((await code.refresh()).state, "destroyed");
  const sandbox = await SandboxPool.with(1, async (made) => {
    pool = made;
    await made.initialize();
    return (await made.acquire()).start();
  });
  assert.equal((await sandbox.refresh()).state, "destroyed");
  assert.equal(await pool.acquire(), undefined);
});

test("limits, time and imports", async () => {
  const sandbox = new CodeSandbox({ allowedImports: null, maxMemoryMb: 64, maxCpuSeconds: 2, maxFileMb: 1, maxProcesses: 3, timeoutSeconds: 20 });
  try {
    const programs = {
      memory: "x = bytearray(200 << 20)\nimport time; time.sleep(100)",
      cpu: "while True: pass",
      file_size: "open('/tmp/large', 'wb').write(bytes(2 << 20))",
      processes: "import subprocess, time\nfor i in range(5): subprocess.Popen(['sleep', '100'])\ntime.sleep(100)",
    };
    for (const [limit, program] of Object.entries(programs)) {
      const result = await sandbox.execute(program);
      assert.deepEqual([result.limit, result.timedOut, result.exitCode !== 0], [limit, false, true], JSON.stringify(result));
    }
    assert.deepEqual(await sandbox.execute("print(6*7)"), { stdout: "42\n", stderr: "", exitCode: 0, timedOut: false, limit: undefined, findings: [], blocked: false });
  } finally {
    await sandbox.close();
  }
  await assert.rejects(sandbox.execute("1"), /was closed/);
  const js = new CodeSandbox({ language: "javascript", allowedImports: ["fs"], timeoutSeconds: 5 });
  try {
    const refused = await js.execute("require('child_process')");
    assert.deepEqual([refused.exitCode, /require of 'child_process' is not allowed; allowed are fs/.test(refused.stderr)], [1, true], refused.stderr);
    assert.equal((await js.execute("console.log(typeof require('fs').readFileSync)")).stdout, "function\n");
    assert.equal((await js.execute("for (;;);")).timedOut, true);
  } finally {
    await js.close();
  }
  assert.throws(() => new CodeSandbox({ language: "cobol" }), TypeError);
  assert.throws(() => new CodeSandbox({ language: "bash", allowedImports: [] }), TypeError);
});

test("programs are scanned before they run", async () => {
  const js = new CodeSandbox({ language: "javascript", scan: "block", scanRules: ["process"] });
  try {
    const refused = await js.execute("console.log(1);\nrequire('node:child_process').execSync('true');");
    assert.deepEqual([refused.blocked, refused.exitCode, refused.stdout], [true, 1, ""]);
    assert.deepEqual(refused.findings, [{ line: 2, column: 1, rule: "process", severity: "high", reason: "imports node:child_process" }]);
    const run = await js.execute("console.log(typeof process.env)");
    assert.deepEqual([run.blocked, run.stdout, run.findings], [false, "object\n", []]);
    const all = await (await js.start()).scanCode("import net from 'net'; fetch('x'); process.env.A; eval('1'); fs.rmSync('a')", { language: "javascript", allowedImports: [] });
    assert.deepEqual(all.findings.map((f) => f.rule), ["import", "network", "network", "environment", "eval", "file_delete"]);
  } finally {
    await js.close();
  }
  const bash = new CodeSandbox({ language: "bash", scan: "block" });
  try {
    const killed = await bash.execute("echo 1\nkill 1");
    assert.deepEqual([killed.blocked, killed.findings.map((f) => `${f.line} ${f.rule}`)], [true, ["2 process"]]);
    assert.equal((await bash.execute("echo $#")).stdout, "0\n");
  } finally {
    await bash.close();
  }
});

test("a released sandbox is clean, and an ended one is replaced", async () => {
  const pool = new SandboxPool(2);
  try {
    await pool.initialize({ allowedImports: null });
    const first = await pool.acquire();
    const second = await pool.acquire();
    assert.equal(await pool.acquire(), undefined);
    assert.deepEqual(pool.status(), { total: 2, available: 0, inUse: 2 });
    const dirt = [
      "import os, subprocess",
      "open('/tmp/left', 'w').write('x')",
      "open('/dev/shm/left', 'w').write('x')",
      "held = open('/tmp/held', 'w')",
      "os.unlink('/tmp/held')",
      "subprocess.Popen(['sleep', '1000'], stdout=held, start_new_session=True)",
    ].join("\n");
    const search = "ls /tmp/left /dev/shm/left 2>/dev/null; ls -l /proc/[0-9]*/fd 2>/dev/null | grep -o '/tmp/held.*'; grep -ls sleep /proc/[0-9]*/comm; echo $LEFT";
    assert.equal((await first.execute(dirt)).exitCode, 0);
    const sandbox = await first.start();
    const dirty = (await sandbox.run(search)).stdout;
    for (const trace of ["/tmp/left", "/dev/shm/left", "/tmp/held", "/comm"]) assert.ok(dirty.includes(trace), `${dirty} has no ${trace}`);
    await sandbox.runCode("left=1", { language: "bash" });
    await sandbox.url(8000);
    await sandbox.client.sandboxes.updateEnv(sandbox.id, { LEFT: "1" });
    await (await second.start()).delete();
    await Promise.all([pool.release(first), pool.release(second)]);
    assert.equal((await sandbox.run(search)).stdout, "\n");
    assert.equal((await sandbox.runCode("echo $left", { language: "bash" })).stdout, "\n");
    assert.deepEqual(await sandbox.ports.list().all(), []);
    await assert.rejects(first.execute("1"), /released to its pool/);
    await assert.rejects(pool.release(first), (err) => err instanceof ModboxError && err.code === "conflict");
    for (const handle of [await pool.acquire(), await pool.acquire()]) {
      assert.equal((await handle.execute("print(1)")).stdout, "1\n");
      await pool.release(handle);
    }
    assert.deepEqual(pool.status(), { total: 2, available: 2, inUse: 0 });
  } finally {
    await pool.close();
  }
  assert.equal(await pool.acquire(), undefined);
});

test("policies of a workspace", async () => {
  const own = new Modbox();
  const workspace = await own.workspaces.create("policies of TypeScript");
  const client = new Modbox({ workspaceId: workspace.id });
  const js = new CodeSandbox({ language: "javascript", allowedImports: ["path", "net"] }, client);
  const python = new CodeSandbox({}, client);
  try {
    await js.start();
    await client.workspaces.update(workspace.id, { codeScan: "block" });
    const refused = await js.execute("1;\nrequire('net')");
    assert.deepEqual([refused.blocked, refused.exitCode, /line 2: network/.test(refused.stderr)], [true, 1, true], refused.stderr);
    assert.equal((await js.execute("console.log(require('path').sep)")).stdout, "/\n");
    assert.match((await js.execute("require('fs')")).stderr, /require of 'fs' is not allowed/);
    assert.equal((await python.execute("import math; print(math.floor(2.5))")).stdout, "2\n");
    await client.workspaces.update(workspace.id, { codeScan: "warn" });
    const warned = await js.execute("require('net'); console.log('ran')");
    assert.deepEqual([warned.stdout, warned.findings.map((f) => f.rule), warned.blocked], ["ran\n", ["network"], false]);
  } finally {
    await Promise.all([js.close(), python.close()]);
    await own.workspaces.delete(workspace.id);
  }
});

test("limits of code in contexts", async () => {
  const sandbox = await Sandbox.create({ image: "modbox/code-exec" });
  try {
    const burned = await sandbox.runCode("while :; do :; done", { language: "bash", limits: { cpuSeconds: 1 } });
    assert.deepEqual([burned.limitExceeded, burned.status], ["cpu", "interrupted"]);
    const context = await sandbox.contexts.create({ language: "bash", limits: { fileSize: "1Mi" } });
    assert.equal(context.limits?.fileSize, "1Mi");
    const large = "head -c 2000000 /dev/zero >/tmp/x";
    assert.equal((await sandbox.runCode(large, { context })).limitExceeded, "file_size");
    assert.equal((await sandbox.runCode(large, { context, limits: { cpuSeconds: 60 } })).limitExceeded, undefined);
  } finally {
    await sandbox.delete();
  }
});
