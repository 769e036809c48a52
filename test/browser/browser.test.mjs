// A browser in a sandbox, used over the sandbox's URL as people use it: by
// Playwright, and by a viewer of its screen; also after a pause, in forks, and
// after it was killed.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const { MODBOX_URL: server, MODBOX_API_TOKEN: token } = process.env;
if (!server || !token) throw new Error("set MODBOX_URL and MODBOX_API_TOKEN");

// How long anything may take: much, for a busy machine.
const patience = 300_000;

/** api calls the server and returns its answer, which must be good. */
async function api(method, path, body) {
	const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
	const res = await fetch(`${server}/v1${path}`, { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(patience) });
	const text = await res.text();
	assert.ok(res.ok, `${method} ${path}: ${res.status} ${text}`);
	return text && JSON.parse(text);
}

/** exec runs a line of shell in a sandbox and returns what it prints. */
async function exec(id, line) {
	const r = await api("POST", `/sandboxes/${id}/exec`, { command: ["sh", "-c", line] });
	assert.equal(r.exit_code, 0, r.stderr);
	return r.stdout;
}

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

/** browse gives use a connection to a sandbox's browser, and ends it. */
async function browse(sandbox, use) {
	const browser = await chromium.connectOverCDP(`${sandbox.url}/cdp`, { timeout: patience });
	try {
		const context = browser.contexts()[0];
		context.setDefaultTimeout(patience);
		return await use(context);
	} finally {
		await browser.close();
	}
}

/** pageAt returns the page of a context that shows a path. */
function pageAt(context, path) {
	const page = context.pages().find((p) => new URL(p.url()).pathname === path);
	assert.ok(page, `no page shows ${path}: ${context.pages().map((p) => p.url())}`);
	return page;
}

let sandbox;
before(async () => {
	const made = await api("POST", "/sandboxes", { image: "modbox/chromium", ttl_seconds: 3600 });
	sandbox = await until(async () => {
		const sb = await api("GET", `/sandboxes/${made.id}`);
		assert.notEqual(sb.state, "provisioning");
		return sb;
	});
	assert.equal(sandbox.state, "running", JSON.stringify(sandbox.cause));
	await exec(sandbox.id, `mkdir -p /workspace/site && cat >/workspace/site/app.html <<'EOF'
<!DOCTYPE html><title>App</title>
<button onclick="n++; out.textContent = 'clicked ' + n">Press</button> <p id="out">waiting</p>
<script>let n = 0; const out = document.getElementById("out"); window.secret = crypto.randomUUID();</script>
EOF`);
	await api("POST", `/sandboxes/${sandbox.id}/executions`, { command: ["python3", "-m", "http.server", "--directory", "/workspace/site", "3000"] });
	await until(() => exec(sandbox.id, "curl -fsS -o /dev/null http://127.0.0.1:3000/app.html"));
});
after(() => sandbox && api("DELETE", `/sandboxes/${sandbox.id}`));

let secret; // of the page, made anew whenever it is loaded

test("the default memory is the image's", () => {
	assert.equal(sandbox.resources.memory, "2Gi");
});

test("Playwright opens a page, clicks, reads, and takes a picture", () => browse(sandbox, async (context) => {
	const page = await context.newPage();
	await page.goto("http://127.0.0.1:3000/app.html");
	await page.getByRole("button", { name: "Press" }).click();
	assert.equal(await page.locator("#out").innerText(), "clicked 1");
	const picture = await page.screenshot();
	assert.equal(picture.subarray(1, 4).toString(), "PNG");
	secret = await page.evaluate(() => window.secret);
	assert.match(secret, /^[0-9a-f-]{36}$/);
}));

test("the addresses it gives are below the sandbox's URL", async () => {
	const list = await (await fetch(`${sandbox.url}/cdp/json/list`)).json();
	const below = sandbox.url.replace(/^http/, "ws") + "/cdp/devtools/";
	assert.ok(list.length > 0 && list.every((t) => t.webSocketDebuggerUrl.startsWith(below)), JSON.stringify(list));
});

test("pages in the browser do not command it", () => browse(sandbox, async (context) => {
	const page = pageAt(context, "/app.html");
	const opened = (url) => page.evaluate((url) => new Promise((done) => {
		const ws = new WebSocket(url);
		ws.onopen = () => done("open");
		ws.onerror = () => done("refused");
	}), url);
	const version = await (await fetch(`${sandbox.url}/cdp/json/version`)).json();
	const { pathname } = new URL(version.webSocketDebuggerUrl.split("/cdp")[1], "http://x");
	for (const url of [`ws://127.0.0.1:8080/cdp${pathname}`, `ws://127.0.0.1:9222${pathname}`, "ws://127.0.0.1:8080/vnc/websockify"]) {
		assert.equal(await opened(url), "refused", url);
	}
}));

test("/vnc/ is a viewer, whose WebSocket is the screen", async () => {
	const page = await fetch(`${sandbox.url}/vnc/`);
	assert.equal(page.status, 200);
	assert.match(await page.text(), /rfb\.js/);
	assert.equal((await fetch(`${sandbox.url}/vnc/core/rfb.js`)).status, 200);
	const greeting = await until(() => new Promise((resolve, reject) => {
		const req = request(`${sandbox.url}/vnc/websockify`, { headers: {
			Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		} });
		req.on("response", (res) => reject(new Error(`status ${res.statusCode}`)));
		req.on("error", reject);
		req.on("upgrade", (_, socket, head) => {
			let data = head;
			const look = () => {
				if (data.length < 14) return; // two bytes of a frame, twelve of a version
				socket.destroy();
				resolve(data.subarray(2, 14).toString());
			};
			socket.on("data", (d) => { data = Buffer.concat([data, d]); look(); });
			socket.on("error", reject);
			look();
		});
		req.end();
	}));
	assert.match(greeting, /^RFB 003\.\d{3}\n$/);
});

test("a request to a paused sandbox wakes the browser, with its page as it was", async () => {
	await api("POST", `/sandboxes/${sandbox.id}/pause`);
	assert.equal((await api("GET", `/sandboxes/${sandbox.id}`)).state, "paused");
	await browse(sandbox, async (context) => {
		const page = pageAt(context, "/app.html");
		assert.equal(await page.evaluate(() => window.secret), secret);
		await page.getByRole("button", { name: "Press" }).click();
		assert.equal(await page.locator("#out").innerText(), "clicked 2");
	});
});

test("a fork has the same page, and goes its own way", async (t) => {
	const { forks } = await api("POST", `/sandboxes/${sandbox.id}/fork`, { count: 1 });
	const fork = forks[0].sandbox;
	t.after(() => api("DELETE", `/sandboxes/${fork.id}`));
	await browse(fork, async (context) => {
		const page = pageAt(context, "/app.html");
		assert.equal(await page.evaluate(() => window.secret), secret);
		await page.getByRole("button", { name: "Press" }).click();
		assert.equal(await page.locator("#out").innerText(), "clicked 3");
	});
	assert.equal(await browse(sandbox, (context) => pageAt(context, "/app.html").locator("#out").innerText()), "clicked 2");

	// Its name is another than that in the profile's lock.
	const killed = (await exec(fork.id, "pgrep -o -f remote-debugging-port=9222")).trim();
	await exec(fork.id, `kill -9 ${killed}`);
	await browseAgain(fork, killed);
});

/** browseAgain finds another browser than the one that was killed. */
const browseAgain = (sb, killed) => until(async () => {
	assert.notEqual((await exec(sb.id, "pgrep -o -f remote-debugging-port=9222")).trim(), killed);
	await browse(sb, async (context) => {
		const page = await context.newPage();
		await page.goto("http://127.0.0.1:3000/app.html");
		assert.equal(await page.title(), "App");
	});
});

test("everything that is killed comes back", async () => {
	const killed = (await exec(sandbox.id, "pgrep -o -f remote-debugging-port=9222")).trim();
	await exec(sandbox.id, "pkill -9 Xvfb; pkill -9 x11vnc; pkill -9 nginx; pkill -9 chromium; true");
	await browseAgain(sandbox, killed);
	await until(async () => assert.equal((await fetch(`${sandbox.url}/`)).status, 200));
	await until(() => exec(sandbox.id, "pgrep Xvfb && pgrep x11vnc"));
});

test("the example of the documentation runs as written", async (t) => {
	const page = await readFile(new URL("../../docs/browser.md", import.meta.url), "utf8");
	const example = page.match(/```ts\n([^]*?)```/)[1];
	const dir = await mkdtemp(new URL("tmp-", import.meta.url).pathname); // beside node_modules
	t.after(() => rm(dir, { recursive: true }));
	await writeFile(`${dir}/example.mjs`, example);
	const { stdout } = await promisify(execFile)(process.execPath, ["example.mjs"], { cwd: dir, timeout: patience });
	assert.equal(stdout, "Hello\n");
	assert.equal((await readFile(`${dir}/hello.png`)).subarray(1, 4).toString(), "PNG");
});
