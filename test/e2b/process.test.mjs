// Commands and terminals.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, later, lines } from "./setup.mjs";

for (const [line, { Sandbox, CommandExitError, NotFoundError, TimeoutError }] of Object.entries(lines)) {
	test(`${line}: commands`, async (t) => {
		const sbx = await create(t, Sandbox, { timeoutMs: 300_000 });
		await t.test("output, exit code, environment, directory, user", async () => {
			const out = [];
			const done = await sbx.commands.run("echo out; echo err >&2; echo $A; pwd", { envs: { A: "b" }, cwd: "/tmp", onStdout: (s) => out.push(s) });
			assert.deepEqual([done.exitCode, done.stdout, done.stderr], [0, "out\nb\n/tmp\n", "err\n"]);
			assert.equal(out.join(""), done.stdout);
			assert.equal((await sbx.commands.run("whoami; echo $HOME", { user: "root" })).stdout, "root\n/root\n");
			assert.equal((await sbx.commands.run('echo "$E2B_SANDBOX $E2B_SANDBOX_ID"')).stdout, `true ${sbx.sandboxId}\n`);
			await assert.rejects(sbx.commands.run("echo no >&2; exit 3"), (err) => {
				assert.ok(err instanceof CommandExitError);
				assert.deepEqual([err.exitCode, err.stderr], [3, "no\n"]);
				return true;
			});
			await assert.rejects(sbx.commands.run("true", { cwd: "/none" }), /does not exist/);
			await assert.rejects(sbx.commands.run("true", { user: "nobody-here" }), /invalid username/);
		});
		await t.test("input, list, kill", async () => {
			const cat = await sbx.commands.run("cat", { background: true, stdin: true, timeoutMs: 0 });
			await sbx.commands.sendStdin(cat.pid, "hello\n");
			const listed = (await sbx.commands.list()).find((p) => p.pid === cat.pid);
			assert.deepEqual([listed.cmd, listed.args], ["/bin/bash", ["-l", "-c", "cat"]]);
			assert.equal((await sbx.commands.run(`kill -0 ${cat.pid} && echo alive`)).stdout, "alive\n");
			await sbx.commands.closeStdin(cat.pid);
			assert.equal((await cat.wait()).stdout, "hello\n");
			const sleeper = await sbx.commands.run("sleep 1000 & sleep 1000; wait", { background: true, timeoutMs: 0 });
			assert.equal(await sleeper.kill(), true);
			await assert.rejects(sleeper.wait(), (err) => err instanceof CommandExitError);
			assert.equal(await sbx.commands.kill(sleeper.pid), false);
		});
		await t.test("a second client reads along", async () => {
			const first = await sbx.commands.run("read x; echo got $x; read y; echo got $y", { background: true, stdin: true, timeoutMs: 0 });
			const seen = later();
			const second = await sbx.commands.connect(first.pid, { onStdout: (s) => s.includes("two") && seen.resolve(s), timeoutMs: 0 });
			await sbx.commands.sendStdin(first.pid, "one\n");
			await sbx.commands.sendStdin(first.pid, "two\n");
			assert.match(await seen.promise, /got two/);
			assert.equal((await second.wait()).exitCode, 0);
			assert.equal((await first.wait()).stdout, "got one\ngot two\n");
		});
		await t.test("a process outlives its client, and ends at its time limit", async () => {
			const first = await sbx.commands.run("sleep 1; echo late > /tmp/late", { background: true, timeoutMs: 0 });
			await first.disconnect();
			await sbx.commands.run("for i in $(seq 100); do [ -e /tmp/late ] && exit; sleep 0.1; done; exit 1");
			await assert.rejects(sbx.commands.run("sleep 1000", { timeoutMs: 1000 }), TimeoutError);
			await sbx.commands.run("for i in $(seq 100); do pgrep -x -f 'sleep 1000' || exit 0; sleep 0.1; done; exit 1");
		});
		await t.test("much output", async () => {
			const { stdout } = await sbx.commands.run("head -c 3000000 /dev/zero | tr '\\0' x");
			assert.equal(stdout.length, 3_000_000);
			assert.equal((await sbx.commands.run("printf 'ü%.0s' $(seq 1000)")).stdout, "ü".repeat(1000));
		});
	});

	test(`${line}: a client that goes away leaves its command`, async (t) => {
		const sbx = await create(t, Sandbox, { timeoutMs: 300_000 });
		const gone = new AbortController();
		const first = await sbx.commands.run("echo started; sleep 2; echo done > /tmp/done", { background: true, timeoutMs: 0, signal: gone.signal });
		first.wait().catch(() => {});
		gone.abort();
		await sbx.commands.run("for i in $(seq 100); do [ -s /tmp/done ] && exit; sleep 0.1; done; exit 1");
	});

	test(`${line}: handles, bytes, aborts and timeouts of commands`, async (t) => {
		const sbx = await create(t, Sandbox, { timeoutMs: 300_000 });
		const { commands } = sbx;
		assert.equal(commands.supportsStdinClose, true);
		const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
		const writer = await commands.run("cat >/tmp/bytes; echo err >&2", { background: true, stdin: true, timeoutMs: 0 });
		await writer.sendStdin(bytes);
		await commands.sendStdin(writer.pid, bytes);
		await writer.closeStdin();
		await writer.wait();
		assert.deepEqual([writer.exitCode, writer.error, writer.stdout, writer.stderr], [0, undefined, "", "err\n"]);
		assert.deepEqual(await sbx.files.read("/tmp/bytes", { format: "bytes" }), Uint8Array.from([...bytes, ...bytes]));
		const much = new Uint8Array(1 << 20).fill(120);
		const counter = await commands.run("wc -c", { background: true, stdin: true, timeoutMs: 0 });
		for (let i = 0; i < 4; i++) await commands.sendStdin(counter.pid, much);
		await commands.closeStdin(counter.pid);
		assert.equal((await counter.wait()).stdout.trim(), String(4 << 20));

		const failed = await commands.run("echo out; echo bad >&2; exit 5").catch((err) => err);
		assert.ok(failed instanceof CommandExitError);
		assert.deepEqual([failed.exitCode, failed.stdout, failed.stderr, typeof failed.error], [5, "out\n", "bad\n", "string"]);
		await assert.rejects(commands.run("true", { signal: AbortSignal.abort() }));
		await assert.rejects(commands.list({ signal: AbortSignal.abort() }));
		await assert.rejects(commands.connect(99_999), /not.*found|99999/i);
		await assert.rejects(commands.sendStdin(99_999, "x"), /not.*found|99999/i);
		const late = await commands.run("sleep 1000", { background: true, timeoutMs: 1000 });
		await assert.rejects(late.wait(), TimeoutError);
		await assert.rejects(sbx.getMetrics({ requestTimeoutMs: 1 })); // the server takes two measurements, 200 ms apart

		const all = await Promise.all(Array.from({ length: 20 }, (_, i) => commands.run(`read x; echo $x ${i}`, { background: true, stdin: true })));
		assert.equal(new Set(all.map((c) => c.pid)).size, 20);
		await Promise.all(all.map((c) => commands.sendStdin(c.pid, "line\n")));
		assert.deepEqual((await Promise.all(all.map((c) => c.wait()))).map((r) => r.stdout), all.map((_, i) => `line ${i}\n`));
	});

	test(`${line}: a terminal`, async (t) => {
		const sbx = await create(t, Sandbox, { timeoutMs: 300_000 });
		let text = "";
		const seen = later();
		const terminal = await sbx.pty.create({
			cols: 90, rows: 30, timeoutMs: 0, onData: (d) => {
				text += new TextDecoder().decode(d);
				if (text.includes("size=31 91")) seen.resolve();
			},
		});
		await sbx.pty.resize(terminal.pid, { cols: 91, rows: 31 });
		await sbx.pty.sendInput(terminal.pid, new TextEncoder().encode('echo "size=$(stty size)"\n'));
		await seen.promise;
		await sbx.pty.sendInput(terminal.pid, new TextEncoder().encode("exit\n"));
		assert.equal((await terminal.wait()).exitCode, 0);
		const other = await sbx.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: () => {} });
		let along = "";
		const read = later();
		await sbx.pty.connect(other.pid, { timeoutMs: 0, onData: (d) => (along += new TextDecoder().decode(d)).includes("along=2") && read.resolve() });
		await sbx.pty.sendInput(other.pid, new TextEncoder().encode("echo along=$((1 + 1))\n"));
		await read.promise;
		assert.equal(await sbx.pty.kill(other.pid), true);
		await other.wait().catch(() => {});
		assert.equal(await sbx.pty.kill(other.pid), false);
	});

	test(`${line}: bytes, errors and time limits of terminals, and 20 at once`, async (t) => {
		const { pty } = await create(t, Sandbox, { timeoutMs: 300_000 });
		const encode = (text) => new TextEncoder().encode(text);
		/** opened makes a terminal, and resolves to it and to what waits until it has shown a text, a length of bytes later. */
		const opened = async (opts = {}) => {
			const looks = new Set();
			let shown = Buffer.alloc(0);
			const terminal = await pty.create({
				cols: 80, rows: 24, timeoutMs: 0, ...opts, onData: (d) => {
					shown = Buffer.concat([shown, d]);
					for (const look of looks) look();
				},
			});
			const after = (text, length = 0) => new Promise((resolve) => {
				const look = () => {
					const at = shown.indexOf(text);
					if (at < 0 || shown.length < at + text.length + length) return;
					looks.delete(look);
					resolve(shown.subarray(at + text.length, at + text.length + length));
				};
				looks.add(look);
				look();
			});
			return { terminal, after };
		};
		const raw = await opened();
		await pty.sendInput(raw.terminal.pid, encode("stty raw -echo; echo be''gin; exec cat\n"));
		await raw.after("begin\n");
		const bytes = Uint8Array.from({ length: 256 * 256 }, (_, i) => (i * 7 + (i >> 8)) % 256);
		// A terminal takes some kilobytes at a time from its writer: the pieces are read in between.
		for (let i = 0; i < bytes.length; i += 1024) {
			await pty.sendInput(raw.terminal.pid, bytes.subarray(i, i + 1024));
			await raw.after("begin\n", i + 1024);
		}
		assert.deepEqual(new Uint8Array(await raw.after("begin\n", bytes.length)), bytes);
		const much = await opened();
		await pty.sendInput(much.terminal.pid, encode("stty -echo; echo be''gin; head -c 2000000 /dev/zero | tr '\\0' x; echo e''nd\n"));
		assert.equal(String(await much.after("begin\r\n", 2_000_003)).lastIndexOf("x"), 1_999_999);

		await assert.rejects(pty.connect(99_999, { onData: () => {} }), NotFoundError);
		await assert.rejects(pty.resize(99_999, { cols: 80, rows: 24 }), NotFoundError);
		await assert.rejects(pty.sendInput(99_999, encode("x")), NotFoundError);
		assert.equal(await pty.kill(99_999), false);
		await assert.rejects(pty.create({ cols: 80, rows: 24, cwd: "/none", onData: () => {} }), /does not exist/);
		await assert.rejects(pty.create({ cols: 80, rows: 24, user: "nobody-here", onData: () => {} }), /invalid username/);
		await assert.rejects(pty.create({ cols: 80, rows: 24, onData: () => {}, signal: AbortSignal.abort() }));
		await assert.rejects((await opened({ timeoutMs: 1000 })).terminal.wait(), TimeoutError);

		const all = await Promise.all(Array.from({ length: 20 }, () => opened({ envs: { A: "b" }, cwd: "/tmp" })));
		assert.equal(new Set(all.map(({ terminal }) => terminal.pid)).size, 20);
		await Promise.all(all.map(({ terminal }, i) => pty.sendInput(terminal.pid, encode(`echo "n''o ${i} $A $PWD"\n`))));
		await Promise.all(all.map(({ after }, i) => after(`n''o ${i} b /tmp\r\n`)));
	});
}

test("a kill of the sandbox ends its streams", async (t) => {
	const { Sandbox, TimeoutError } = lines["2.51"];
	const sbx = await create(t, Sandbox);
	const running = await sbx.commands.run("sleep 1000", { background: true, timeoutMs: 0 });
	const ended = assert.rejects(running.wait(), TimeoutError);
	await sbx.kill();
	await ended;
});
