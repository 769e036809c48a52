// The desktop of modbox/sandbox, used at the sandbox's URL as people and agents use it: noVNC and the
// web terminal in a browser of this machine, CDP by Playwright, MCP by the official client, screen,
// mouse and keyboard through the SDK; also after a pause, in a fork, and after everything was killed.
// Pictures are kept below tmp/desktop for people to look at.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ModboxError, Sandbox } from "modbox-sdk";
import { chromium } from "playwright-core";
import { PNG } from "pngjs";
import { launch } from "./machine.mjs";

const patience = 300_000; // for a busy machine
const pictures = fileURLToPath(new URL("../../tmp/desktop/", import.meta.url));

/** until asks again until probe does not fail. */
async function until(probe) {
	const deadline = Date.now() + patience;
	for (;;) {
		try {
			return await probe();
		} catch (err) {
			if (Date.now() > deadline) throw err;
			await new Promise((done) => setTimeout(done, 500));
		}
	}
}

/** colours returns how many colours a picture has, up to 1000: a blank one has one. */
function colours(png) {
	const { data } = PNG.sync.read(Buffer.from(png));
	const seen = new Set();
	for (let i = 0; i < data.length && seen.size < 1000; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
	return seen.size;
}

/** keep keeps a picture, which must not be blank. */
async function keep(name, png) {
	await writeFile(join(pictures, `${name}.png`), png);
	assert.ok(colours(png) > 10, `${name}.png is blank`);
}

/** use connects a client to an MCP server of a sandbox. */
async function mcp(sbx, server, use) {
	const client = new Client({ name: "test", version: "1" });
	await client.connect(new StreamableHTTPClientTransport(new URL(`${sbx.info.url}/mcp/${server}`)), { timeout: patience });
	try {
		return await use(async (name, args = {}) => {
			const result = await client.callTool({ name, arguments: args }, undefined, { timeout: patience });
			const text = result.content.filter((c) => c.type === "text").map((c) => c.text).join("");
			return { ...result, text };
		}, client);
	} finally {
		await client.close();
	}
}

/** lastPicture returns the last picture of a film in the sandbox. */
async function lastPicture(path) {
	const made = await sbx.run(`ffmpeg -v error -y -sseof -1 -i ${path} -update 1 /tmp/last.png`);
	assert.equal(made.exitCode, 0, made.stderr);
	return sbx.files.readBytes("/tmp/last.png");
}

/** windowTitled returns the window with a title. */
const windowTitled = (sbx, title) => until(async () => {
	const list = await sbx.desktop.windows();
	const found = list.find((w) => w.title.includes(title));
	assert.ok(found, `no window has the title ${title}: ${list.map((w) => w.title)}`);
	return found;
});

const page = `<!DOCTYPE html><title>Page of the test</title><style>body { background: #fed; font-size: 30px }</style>
<input id="in" autofocus> <button onclick="out.textContent = 'pressed ' + document.getElementById('in').value">Press</button> <p id="out">waiting</p>
<script>const out = document.getElementById("out");</script>`;

let sbx, browser;
before(async () => {
	await mkdir(pictures, { recursive: true });
	sbx = await Sandbox.create({ image: "modbox/sandbox", ttlSeconds: 3600, waitSeconds: 900, resources: { memory: "2Gi", cpu: "2" } });
	await sbx.files.write("/workspace/site/page.html", page);
	await sbx.commands.start("python3 -m http.server --directory /workspace/site 3000");
	browser = await launch();
});
after(async () => {
	await browser?.close();
	await sbx?.delete();
});

test("the sandbox is ready when the desktop is", async () => {
	assert.equal((await fetch(`${sbx.info.url}/`)).status, 200);
	assert.equal((await sbx.run("pgrep -u user -x Xvnc && pgrep -u user icewm && pgrep -u user -f remote-debugging-port=9222 | head -n 1")).exitCode, 0);
	const screen = await sbx.desktop.screen();
	assert.deepEqual([screen.width, screen.height], [1920, 1080]);
	await keep("start", await sbx.desktop.screenshot());
});

test("a person sees the desktop in noVNC, and a click there reaches it", async (t) => {
	await sbx.desktop.launch(["xterm", "-T", "Window of the test", "-geometry", "80x24+200+200", "-e", "sleep", "100000"]);
	await windowTitled(sbx, "Window of the test");
	const viewer = await browser.newPage({ viewport: { width: 1280, height: 720 } });
	t.after(() => viewer.close());
	await viewer.goto(`${sbx.info.url}/vnc/`, { timeout: patience });
	await viewer.locator("canvas").waitFor({ timeout: patience });
	await until(async () => assert.ok(colours(await viewer.screenshot()) > 10));
	await keep("novnc", await viewer.screenshot());
	await until(async () => {
		await viewer.mouse.move(700, 30); // 1.5 screen pixels are one of the viewer's
		await viewer.mouse.move(600, 300);
		const { cursor } = await sbx.desktop.screen();
		assert.ok(Math.abs(cursor.x - 900) < 3 && Math.abs(cursor.y - 450) < 3, JSON.stringify(cursor));
	});
});

test("a person types in the web terminal; the shell goes on when the page is loaded again", async (t) => {
	const terminal = await browser.newPage({ viewport: { width: 1000, height: 600 } });
	t.after(() => terminal.close());
	const shows = (text) => until(async () => assert.ok((await terminal.locator(".xterm-rows").innerText()).includes(text)));
	await terminal.goto(`${sbx.info.url}/terminal/`, { timeout: patience });
	await shows("user@");
	await terminal.keyboard.type("n=41; echo the answer is $((n+1)); id -un; stty size\n");
	await shows("the answer is 42");
	assert.doesNotMatch(await terminal.locator(".xterm-rows").innerText(), /\b24 80\b/); // the size of the page
	await keep("terminal", await terminal.screenshot());
	await terminal.reload();
	await shows("the answer is 42");
	await terminal.keyboard.type("echo still $n\n");
	await shows("still 41");
	await terminal.keyboard.type("exit\n");
	await terminal.getByText("The shell has ended").waitFor({ timeout: patience });
});

test("Playwright drives the browser, and the screen shows it", async () => {
	const cdp = await chromium.connectOverCDP(`${sbx.info.url}/cdp`, { timeout: patience });
	try {
		const p = cdp.contexts()[0].pages()[0];
		await p.goto("http://127.0.0.1:3000/page.html", { timeout: patience });
		await p.getByRole("button", { name: "Press" }).click({ timeout: patience });
		assert.match(await p.locator("#out").innerText(), /^pressed/);
	} finally {
		await cdp.close();
	}
	await windowTitled(sbx, "Page of the test");
});

test("an agent uses mouse and keyboard", async () => {
	const { desktop } = sbx;
	const w = await windowTitled(sbx, "Page of the test");
	await desktop.focus(w.id);
	await until(async () => assert.ok((await desktop.windows()).find((x) => x.id === w.id).active));
	await desktop.press("ctrl+l");
	await desktop.type("http://127.0.0.1:3000/page.html?again");
	await desktop.press("Return");
	const cdp = await chromium.connectOverCDP(`${sbx.info.url}/cdp`, { timeout: patience });
	try {
		const p = await until(() => {
			const found = cdp.contexts()[0].pages().find((q) => q.url().endsWith("?again"));
			assert.ok(found);
			return found;
		});
		// Where an element is on the screen.
		const place = (selector) => p.evaluate((s) => {
			const r = document.querySelector(s).getBoundingClientRect();
			return [window.screenX + r.x + r.width / 2, window.screenY + window.outerHeight - window.innerHeight + r.y + r.height / 2].map(Math.round);
		}, selector);
		await desktop.click(...(await place("#in")));
		await desktop.type("Grüße, 10 € – Ωλ!");
		await until(async () => assert.equal(await p.locator("#in").inputValue(), "Grüße, 10 € – Ωλ!"));
		await desktop.click(...(await place("button")));
		await until(async () => assert.equal(await p.locator("#out").innerText(), "pressed Grüße, 10 € – Ωλ!"));
		await keep("typed", await desktop.screenshot({ pointer: true }));
		// Keys that stay down while the machine is busy are not repeated.
		const long = "To be, or not to be. ".repeat(8);
		await p.locator("#in").fill("");
		await desktop.click(...(await place("#in")));
		const busy = sbx.run("until pid=$(pidof xdotool); do :; done; while kill -STOP $pid; do sleep 0.9; kill -CONT $pid; sleep 0.2; done 2>/dev/null; true", { timeoutSeconds: 120 });
		await desktop.type(long);
		await busy;
		await until(async () => assert.equal(await p.locator("#in").inputValue(), long));
		await desktop.doubleClick(...(await place("#out")));
		await until(async () => assert.notEqual(await p.evaluate(() => getSelection().toString().trim()), ""));
		await p.evaluate(() => { document.body.style.height = "5000px"; });
		await desktop.scroll(...(await place("#out")), { direction: "down", amount: 5 });
		await until(async () => assert.ok(await p.evaluate(() => scrollY > 0)));
		const sum = await p.evaluate(() => { window.moves = 0; onmousemove = (e) => { if (e.buttons === 1) window.moves++; }; return window.moves; });
		assert.equal(sum, 0);
		await desktop.drag({ x: 600, y: 500 }, { x: 900, y: 700 });
		await until(async () => assert.ok(await p.evaluate(() => window.moves > 1)));
	} finally {
		await cdp.close();
	}
});

test("screenshots of a part, and errors", async () => {
	const { desktop } = sbx;
	const { width, height } = PNG.sync.read(Buffer.from(await desktop.screenshot({ x: 100, y: 50, width: 320, height: 200 })));
	assert.deepEqual([width, height], [320, 200]);
	const modbox = fileURLToPath(new URL("../../bin/modbox", import.meta.url));
	const { stdout } = await promisify(execFile)(modbox, ["desktop", "screenshot", sbx.id, "--region", "0,0,64,32"], { encoding: "buffer" });
	assert.equal(PNG.sync.read(stdout).width, 64);
	for (const [call, code, field] of [
		[() => desktop.screenshot({ x: 1900, y: 0, width: 100, height: 100 }), "invalid", "width"],
		[() => desktop.press("nosuchkey"), "invalid", "keys"],
		[() => desktop.click(5, 5, { clicks: 9 }), "invalid", "clicks"],
		[() => desktop.act([{ type: "move", at: { x: 1, y: 1 } }, { type: "drag", at: { x: 1, y: 1 } }]), "invalid", "to"],
		[() => desktop.focus("0x1"), "not_found"],
		[() => desktop.open("page.html"), "invalid", "target"],
		[() => desktop.launch(["no-such-program"]), "program_not_found"],
		[() => desktop.resize(10, 10), "invalid", "width"],
	]) {
		await assert.rejects(call, (err) => {
			assert.ok(err instanceof ModboxError, err);
			assert.equal(err.code, code, err.message);
			if (field) assert.ok(JSON.stringify([err.message, err.fields]).includes(field), err.message);
			return true;
		});
	}
});

test("MCP clients call the shell and the browser", async () => {
	await mcp(sbx, "shell", async (call, client) => {
		assert.deepEqual((await client.listTools(undefined, { timeout: patience })).tools.map((tool) => tool.name).sort(), ["exec", "read_file", "write_file"]);
		assert.equal((await call("exec", { command: "echo out; echo err >&2; pwd; exit 3" })).text, "exit code: 3\nstdout:\nout\n/workspace\nstderr:\nerr\n");
		assert.match((await call("exec", { command: "sleep 100", timeout_seconds: 1 })).text, /killed after 1s/);
		await call("write_file", { path: "/workspace/new/file.txt", content: "kept" });
		assert.equal((await call("read_file", { path: "/workspace/new/file.txt" })).text, "kept");
		assert.ok((await call("read_file", { path: "/none" })).isError);
	});
	await mcp(sbx, "browser", async (call) => {
		assert.match((await call("browser_new_tab", { url: "http://127.0.0.1:3000/page.html" })).text, /title: Page of the test\n/);
		assert.match((await call("browser_elements")).text, /button\[submit\] "Press": /);
		await call("browser_type", { selector: "#in", text: "by MCP" });
		await call("browser_click", { selector: "button" });
		assert.match((await call("browser_read")).text, /pressed by MCP/);
		assert.equal((await call("browser_evaluate", { expression: "Promise.resolve(6 * 7)" })).text, "42");
		const shot = (await call("browser_screenshot")).content.find((c) => c.type === "image");
		await keep("mcp", Buffer.from(shot.data, "base64"));
		assert.match((await call("browser_click", { selector: "#nothing" })).text, /no element matches #nothing/);
		const tabs = JSON.parse((await call("browser_tabs")).text);
		assert.ok(tabs.length >= 2);
		await call("browser_close_tab", { tab: tabs[0].id });
		assert.equal(JSON.parse((await call("browser_tabs")).text).length, tabs.length - 1);
	});
});

test("an AI application uses the screen through the MCP server of Modbox", async (t) => {
	const client = new Client({ name: "test", version: "1" });
	await client.connect(new StreamableHTTPClientTransport(new URL("/mcp", process.env.MODBOX_URL), { requestInit: { headers: { Authorization: `Bearer ${process.env.MODBOX_API_TOKEN}` } } }));
	t.after(() => client.close());
	const use = async (name, args = {}) => {
		const result = await client.callTool({ name, arguments: { sandbox: sbx.id, ...args } }, undefined, { timeout: patience });
		assert.ok(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
		return result.content;
	};
	await use("open", { command: ["xterm", "-T", "Window of MCP", "-e", "cat >/tmp/typed-by-mcp"] });
	const w = await windowTitled(sbx, "Window of MCP");
	assert.match((await use("list_windows"))[0].text, /"title":"Window of MCP"/);
	await use("focus_window", { window: w.id });
	await use("click", { x: w.x + 40, y: w.y + 40 });
	await use("type", { text: "grüße\n" });
	const shown = await use("key", { keys: "ctrl+d", screenshot: true });
	assert.match(shown[0].text, /1920x1080/);
	await keep("mcp", Buffer.from(shown.find((c) => c.type === "image").data, "base64"));
	await until(async () => assert.equal((await sbx.run("cat /tmp/typed-by-mcp")).stdout, "grüße\n"));
	const [{ text }] = await use("screenshot", { x: 10, y: 20, width: 30, height: 40 });
	assert.match(text, /30x40 pixels at 10,20/);
});

test("pages in the browser do not command the sandbox", async () => {
	const cdp = await chromium.connectOverCDP(`${sbx.info.url}/cdp`, { timeout: patience });
	try {
		const p = cdp.contexts()[0].pages()[0];
		for (const path of ["vnc/websockify", "terminal/socket?id=abcdefgh", "cdp/devtools/browser"]) {
			const opened = await p.evaluate((url) => new Promise((done) => {
				const ws = new WebSocket(url);
				ws.onopen = () => done("open");
				ws.onerror = () => done("refused");
			}), `ws://127.0.0.1:8080/${path}`);
			assert.equal(opened, "refused", path);
		}
		const status = await p.evaluate(() => fetch("http://127.0.0.1:8080/mcp/shell", {
			method: "POST", headers: { "content-type": "application/json", "x-forwarded-proto": "http" }, body: "{}",
		}).then((r) => r.status, () => "refused"));
		assert.equal(status, "refused");
	} finally {
		await cdp.close();
	}
});

test("the screen changes its size, and is recorded", async () => {
	const { desktop } = sbx;
	const recording = await desktop.record({ path: "/workspace/film.mp4", fps: 5, maxSeconds: 120 });
	assert.equal(recording.state, "recording");
	for (let i = 0; i < 8; i++) await desktop.move(100 + 100 * i, 300);
	await until(async () => assert.ok((await sbx.files.stat("/workspace/film.mp4")).sizeBytes > 0));
	const done = await desktop.stopRecording(recording.id);
	assert.deepEqual([done.state, done.error], ["done", undefined]);
	const probe = await sbx.run("ffprobe -v error -count_packets -show_entries stream=codec_name,width,height,nb_read_packets -of csv=p=0 /workspace/film.mp4");
	assert.match(probe.stdout, /^h264,1920,1080,[1-9]/, probe.stderr);
	const short = await desktop.record({ maxSeconds: 1 });
	await until(async () => assert.equal((await desktop.recording(short.id)).state, "done"));

	const screen = await desktop.resize(1280, 800);
	assert.deepEqual([screen.width, screen.height], [1280, 800]);
	await until(async () => {
		const png = await desktop.screenshot();
		const { width, height } = PNG.sync.read(Buffer.from(png));
		assert.deepEqual([width, height], [1280, 800]);
		await keep("resized", png);
	});
});

test("a recording goes on over a pause", async () => {
	const { desktop } = sbx;
	const path = "/workspace/paused.mp4";
	const pictures = async () => Number((await sbx.run(`ffprobe -v error -count_packets -show_entries stream=nb_read_packets -of csv=p=0 ${path}`)).stdout);
	/** awaitPictures waits until the film has so many pictures. It counts them when the file has grown, because a start of ffprobe takes a second. */
	const awaitPictures = (least) => {
		let size = 0;
		return until(async () => {
			const { sizeBytes } = await sbx.files.stat(path);
			assert.ok(sizeBytes > size);
			size = sizeBytes;
			assert.ok(await pictures() >= least);
		});
	};
	await desktop.resize(640, 480); // the processor encodes
	const recording = await desktop.record({ path, fps: 10, maxSeconds: 600 });
	await awaitPictures(10);
	await sbx.pause();
	const { items: [listed] } = await desktop.recordings(); // wakes nothing
	assert.deepEqual([listed.id, listed.state], [recording.id, "recording"]);
	assert.equal((await sbx.refresh()).state, "paused");
	await sbx.resume();
	const saved = await pictures();
	await awaitPictures(saved + 20);
	assert.equal((await desktop.recording(recording.id)).state, "recording");
	const done = await desktop.stopRecording(recording.id);
	assert.deepEqual([done.state, done.error], ["done", undefined]);
	const decoded = await sbx.run(`ffmpeg -v error -i ${path} -f null -`); // every picture of it
	assert.deepEqual([decoded.exitCode, decoded.stderr], [0, ""]);
	await keep("film", await lastPicture(path));
});

test("a pause, a resume and a fork keep the windows", async (t) => {
	const w = await windowTitled(sbx, "Window of the test");
	await sbx.pause();
	await keep("resumed", await sbx.desktop.screenshot()); // wakes it
	assert.equal((await windowTitled(sbx, "Window of the test")).id, w.id);
	const [fork] = await sbx.fork();
	t.after(() => fork.delete());
	assert.equal((await windowTitled(fork, "Window of the test")).id, w.id);
	await keep("forked", await fork.desktop.screenshot());
	await fork.desktop.close(w.id);
	await until(async () => assert.ok((await fork.desktop.windows()).every((x) => x.id !== w.id)));
	assert.equal((await windowTitled(sbx, "Window of the test")).id, w.id);
	await mcp(fork, "shell", async (call) => assert.match((await call("exec", { command: "echo $DISPLAY" })).text, /:99/));
});

test("everything that is killed comes back", async () => {
	await sbx.run("pkill -9 -x Xvnc; pkill -9 chromium; pkill -9 icewm; pkill -9 modbox-front; true");
	await until(async () => assert.equal((await fetch(`${sbx.info.url}/`)).status, 200));
	const cdp = await until(() => chromium.connectOverCDP(`${sbx.info.url}/cdp`, { timeout: patience }));
	await cdp.close();
	await until(async () => keep("restarted", await sbx.desktop.screenshot()));
	assert.match(await (await fetch(`${sbx.info.url}/terminal/`)).text(), /xterm\.js/);
});

test("with a key, terminals and MCP need it; a sandbox without a desktop says so", async () => {
	await Sandbox.with({ image: "modbox/sandbox", ttlSeconds: 600, waitSeconds: 900, env: { SANDBOX_API_KEY: "secret", SCREEN_SIZE: "1024x768" } }, async (keyed) => {
		const { width, height } = await keyed.desktop.screen();
		assert.deepEqual([width, height], [1024, 768]);
		for (const path of ["terminal/", "mcp/shell"]) {
			assert.equal((await fetch(`${keyed.info.url}/${path}`)).status, 401, path);
			assert.notEqual((await fetch(`${keyed.info.url}/${path}`, { headers: { authorization: "Bearer secret" } })).status, 401, path);
		}
		assert.equal((await fetch(`${keyed.info.url}/cdp/json/version`)).status, 200);
	});
	await Sandbox.with({ image: "modbox/base", ttlSeconds: 600 }, async (plain) => {
		await assert.rejects(plain.desktop.screenshot(), (err) => err.code === "unsupported" && /modbox\/sandbox/.test(err.message));
	});
});

test("modbox/sandbox-lite has a terminal and the shell's MCP server, and neither screen nor browser", async () => {
	await Sandbox.with({ image: "modbox/sandbox-lite", ttlSeconds: 600, waitSeconds: 900 }, async (lite) => {
		assert.equal((await fetch(`${lite.info.url}/`)).status, 200);
		assert.match(await (await fetch(`${lite.info.url}/terminal/`)).text(), /xterm\.js/);
		for (const path of ["vnc/", "cdp/json/version", "mcp/browser"]) assert.equal((await fetch(`${lite.info.url}/${path}`)).status, 404, path);
		await mcp(lite, "shell", async (call) => assert.match((await call("exec", { command: "python3 -c 'print(6*7)'; node -p 6*7" })).text, /stdout:\n42\n42\n/));
		await assert.rejects(lite.desktop.windows(), (err) => err.code === "unsupported");
	});
});

test("the example of the documentation runs as written", async (t) => {
	const text = await readFile(new URL("../../docs/desktop.md", import.meta.url), "utf8");
	const dir = await mkdtemp(new URL("tmp-", import.meta.url).pathname); // beside node_modules
	t.after(() => rm(dir, { recursive: true }));
	await writeFile(`${dir}/example.mjs`, text.match(/```ts\n([^]*?)```/)[1]);
	const { stdout } = await promisify(execFile)(process.execPath, ["example.mjs"], { cwd: dir, timeout: patience });
	assert.equal(stdout, "true\n");
	await keep("example", await readFile(`${dir}/hello.png`));
});
