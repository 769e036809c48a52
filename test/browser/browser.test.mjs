// A browser in a sandbox, used over the sandbox's URL as people use it: by
// Playwright, and by a viewer of its screen; also after a pause, in forks, and
// after it was killed. The sandbox comes from a memory template.
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

/** until asks again, after a pause, until probe does not fail. */
async function until(probe, pause = 500) {
	const deadline = Date.now() + patience;
	for (;;) {
		try {
			return await probe();
		} catch (err) {
			if (Date.now() > deadline) throw err;
			await new Promise((done) => setTimeout(done, pause));
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

/** demandTemplate has the server make a memory template, which it does after two creates, while no sandbox is being started. */
async function demandTemplate() {
	for (let n = 0; n < 2; n++) {
		const sb = await api("POST", "/sandboxes", { image: "modbox/chromium", ttl_seconds: 600, wait_seconds: 0 });
		await api("DELETE", `/sandboxes/${sb.id}`);
	}
	await until(async () => assert.match(await (await fetch(`${server}/metrics`)).text(), /^modbox_templates [1-9]/m, "the server has no memory template"));
}

/** templated makes a sandbox that comes from a memory template, which the server makes after some creates. */
const templated = (options) => until(async () => {
	const sb = await api("POST", "/sandboxes", { image: "modbox/chromium", ttl_seconds: 3600, wait_seconds: 300, ...options });
	assert.equal(sb.state, "running", JSON.stringify(sb.cause));
	const { items } = await api("GET", `/sandboxes/${sb.id}/events`);
	if (items.some((e) => e.data?.from_template === "true")) return sb;
	await api("DELETE", `/sandboxes/${sb.id}`);
	throw new Error(`sandbox ${sb.id} does not come from a memory template`);
}, 5000); // it is made while no sandbox is being started

let sandbox;
before(async () => {
	await demandTemplate();
	sandbox = await templated({});
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

// A program that waits for a connection and prints what was drawn for its TLS handshake: the random bytes, the session, the keys.
const listener = `import socket
listening = socket.create_server(("127.0.0.1", 4443))
open("/tmp/listening", "w").close()
print(listening.accept()[0].recv(16384).hex())`;

test("sandboxes of one memory template share nothing", async (t) => {
	const drawn = [];
	for (const name of ["one", "two"]) {
		const env = { PERSON: `it's "${name}"`, environment: "own", CHROMIUM_FLAGS: "--user-agent=agent-of-" + name };
		const sb = await templated({ env, name: `${name}-of-template` });
		t.after(() => api("DELETE", `/sandboxes/${sb.id}`));
		const variables = async (process) => (await exec(sb.id, `tr '\\0' '\\n' </proc/$(pgrep -o ${process})/environ`)).split("\n");
		await exec(sb.id, "pkill -9 x11vnc; until pgrep x11vnc; do sleep 0.1; done");
		for (const process of ["chromium", "x11vnc"]) {
			const has = await until(() => variables(process));
			for (const want of [`PERSON=${env.PERSON}`, "environment=own", `MODBOX_SANDBOX_ID=${sb.id}`, `MODBOX_SANDBOX_NAME=${sb.name}`]) {
				assert.ok(has.includes(want), `${process} of ${name} lacks ${want}: ${has}`);
			}
		}
		assert.equal((await exec(sb.id, "hostname; readlink /home/user/browser/SingletonLock | sed 's/-[0-9]*$//'")), `${sb.name}\n${sb.name}\n`);
		const { webSocketDebuggerUrl } = await (await fetch(`${sb.url}/cdp/json/version`)).json();
		const values = { browser: webSocketDebuggerUrl.split("/").at(-1) };
		(await (await fetch(`${sb.url}/cdp/json/list`)).json()).forEach((target, i) => { values[`target ${i}`] = target.id; });
		await api("POST", `/sandboxes/${sb.id}/executions`, { command: ["sh", "-c", `python3 -c '${listener}' >/tmp/hello.new && mv /tmp/hello.new /tmp/hello`] });
		await api("POST", `/sandboxes/${sb.id}/executions`, { command: ["python3", "-m", "http.server", "--directory", "/tmp", "3000"] });
		await until(() => exec(sb.id, "curl -fsS -o /dev/null http://127.0.0.1:3000/ && test -e /tmp/listening"));
		await browse(sb, async (context) => {
			const page = await context.newPage();
			await page.goto("http://127.0.0.1:3000/");
			assert.equal(await page.evaluate(() => navigator.userAgent), `agent-of-${name}`);
			Object.assign(values, await page.evaluate(async () => {
				const key = await crypto.subtle.exportKey("raw", await crypto.subtle.generateKey({ name: "AES-GCM", length: 128 }, true, ["encrypt"]));
				return {
					bytes: String(crypto.getRandomValues(new Uint8Array(16))), uuid: crypto.randomUUID(), math: Math.random(),
					key: String(new Uint8Array(key)), blob: URL.createObjectURL(new Blob(["x"])),
				};
			}));
			const session = await context.newCDPSession(page);
			values.page = (await session.send("Target.getTargetInfo")).targetInfo.targetId;
			values.frame = (await session.send("Page.getFrameTree")).frameTree.frame.loaderId;
			values.attached = (await session.send("Target.attachToTarget", { targetId: values.page })).sessionId;
			await page.goto("https://127.0.0.1:4443/").catch(() => {}); // nobody answers the handshake
		});
		const hello = Buffer.from((await until(() => exec(sb.id, "cat /tmp/hello"))).trim(), "hex");
		Object.assign(values, { "TLS random": hello.subarray(11, 43).toString("hex"), "TLS session": hello.subarray(44, 44 + hello[43]).toString("hex") });
		assert.ok(hello[0] === 22 && hello[43] === 32, `not a handshake: ${hello.toString("hex")}`);
		drawn.push(values);
	}
	const [one, two] = drawn;
	assert.deepEqual(Object.keys(one), Object.keys(two));
	for (const [what, value] of Object.entries(one)) {
		assert.ok(value, `${what} is ${value}`);
		assert.notEqual(value, two[what], `${what} is in both sandboxes`);
	}
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
