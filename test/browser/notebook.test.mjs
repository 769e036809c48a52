// The notebook of a sandbox in the web console: code in real interpreters of the image modbox/data.
import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { test } from "node:test";
import { begin, clean, confirmed, console_, patience, sandbox, server, shown, signInByToken, token, visit } from "./kit.mjs";

begin();

/** shared is the sandbox of the tests here, made once. */
let made;
const shared = () => (made ??= sandbox("notebook", { image: "modbox/data" }));

async function open(sb) {
	const page = await visit();
	await signInByToken(page);
	await page.goto(`${console_}/sandboxes/${sb.id}/notebook`);
	await page.getByRole("toolbar", { name: "Notebook" }).waitFor();
	return page;
}

const cell = (page, n) => page.getByRole("region", { name: `Cell ${n}`, exact: true });
const write = (page, n, code) => cell(page, n).getByRole("textbox", { name: "Code" }).fill(code);
const output = (page, n) => page.getByRole("group", { name: `Output of cell ${n}` });
/** html is the page with the HTML that cell n shows. */
const html = (page, n) => output(page, n).frameLocator("iframe").frameLocator("iframe");
const ended = (page, n, state) => cell(page, n).locator(".state", { hasText: state }).waitFor();

test("cells share the state of their context, and show pictures and tables", async () => {
	const sb = await shared();
	const page = await open(sb);
	const languages = cell(page, 1).getByLabel("Language of cell 1");
	await page.waitForFunction(() => !document.querySelector(".cell-head select option[value=r]")); // the image has no R
	assert.deepEqual(await languages.locator("option").allTextContents(), ["Python", "JavaScript", "TypeScript", "Bash"]);

	await write(page, 1, "import matplotlib.pyplot as plt\nspeeds = [1, 4, 9, 16]\nplt.plot(speeds, label='car')\nplt.title('Speed')\nplt.show()");
	await page.keyboard.press("Shift+Enter");
	const plot = output(page, 1).getByRole("img", { name: "Plot “Speed” (line)" });
	await plot.waitFor();
	assert.ok((await plot.evaluate((img) => img.decode().then(() => img.naturalWidth))) > 200, "the width of the plot");

	// The next cell has the focus.
	await page.keyboard.insertText("import pandas as pd; print(sum(speeds)); pd.DataFrame({'speed': speeds, 'name': list('abcd')})");
	await page.keyboard.press("Control+Enter");
	await output(page, 2).getByText("30", { exact: true }).waitFor();
	await output(page, 2).getByRole("columnheader", { name: "speed" }).waitFor();
	assert.equal(await output(page, 2).getByRole("row").count(), 5);
	await output(page, 2).getByText("4 rows × 2 columns").waitFor();

	await page.getByRole("button", { name: "Add a cell" }).click();
	await write(page, 3, "from IPython.display import HTML, SVG, display\ndisplay(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"40\" height=\"20\"><rect width=\"40\" height=\"20\"/></svg>'))\nHTML('<h4>Report</h4><style>h4 { color: rebeccapurple }</style><p id=\"p\">…</p><script>p.textContent = [1, 2].map((n) => n * 2)</script>')");
	await page.keyboard.press("Control+Enter");
	await html(page, 3).getByText("2,4").waitFor(); // its scripts run
	assert.equal(await output(page, 3).locator("img").evaluate((img) => img.decode().then(() => img.naturalWidth)), 40);

	await page.getByRole("button", { name: "Add a cell" }).click();
	await write(page, 4, "speeds[10]");
	await page.keyboard.press("Control+Enter");
	await output(page, 4).getByRole("alert").getByText("IndexError: list index out of range").first().waitFor();
	await ended(page, 4, "error");
	assert.ok(!(await output(page, 4).textContent()).includes("\x1b"), "escape sequences in the traceback");
	await shown(page, "notebook");

	// After a reload, HTML runs again only on request.
	await page.reload();
	const show = output(page, 3).getByRole("button", { name: "Show", exact: true });
	await show.waitFor();
	assert.equal(await output(page, 3).locator("iframe").count(), 0, "frames with restored HTML");
	await show.click();
	await html(page, 3).getByText("2,4").waitFor();
	clean(page);
});

test("code is interrupted, and a context is restarted; cells outlive the page", async () => {
	const sb = await shared();
	const page = await open(sb);
	await write(page, 1, "import time\nkept = 7\nprint('begun', flush=True)\ntime.sleep(600)");
	await cell(page, 1).getByRole("button", { name: "Run cell 1" }).click();
	await output(page, 1).getByText("begun").waitFor(); // while it runs
	await ended(page, 1, "running");
	await page.getByRole("button", { name: "Interrupt Python" }).waitFor();
	await shown(page, "notebook-running");

	// The code goes on while another page is shown.
	await page.getByRole("tab", { name: /Events/ }).click();
	await page.getByRole("tab", { name: "Notebook" }).click();
	await ended(page, 1, "running");
	await cell(page, 1).getByRole("button", { name: "Interrupt cell 1" }).click();
	await output(page, 1).getByText("KeyboardInterrupt").first().waitFor();
	await ended(page, 1, "interrupted");

	await page.getByRole("button", { name: "Add a cell" }).click();
	await write(page, 2, "kept * 6");
	await page.keyboard.press("Control+Enter");
	await output(page, 2).getByText("42", { exact: true }).waitFor();
	await page.getByRole("button", { name: "Add a cell" }).click();
	await cell(page, 3).getByLabel("Language of cell 3").selectOption("JavaScript");
	await write(page, 3, "[1, 2, 3].map((n) => n + 0.5)");
	await page.keyboard.press("Control+Enter");
	await output(page, 3).getByText("1.5").waitFor();

	await page.reload();
	await output(page, 2).getByText("42", { exact: true }).waitFor();
	assert.equal(await cell(page, 3).getByLabel("Language of cell 3").inputValue(), "javascript");

	await page.getByRole("button", { name: "Restart Python" }).click();
	await confirmed(page, "Restart");
	await cell(page, 2).getByRole("button", { name: "Run cell 2" }).click();
	await output(page, 2).getByText("NameError").first().waitFor();

	// By the keyboard alone: out of the editor, to the buttons of the cell.
	await cell(page, 2).getByRole("textbox", { name: "Code" }).focus();
	await page.keyboard.press("Escape");
	await page.keyboard.press("Shift+Tab");
	assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Remove cell 2");
	await page.keyboard.press("Enter");
	await page.getByRole("region", { name: "Cell 3", exact: true }).waitFor({ state: "detached" });

	await page.getByRole("button", { name: "theme and sign-out" }).click();
	await page.getByRole("menuitem", { name: "Sign out" }).click();
	await page.getByRole("heading", { name: "Sign in" }).waitFor();
	assert.equal(await page.evaluate(() => sessionStorage.length), 0, "what the browser's session keeps");
	clean(page);
});

/** elsewhere is a page of a port of a sandbox, whose host is one of those that the pages of the console may frame. */
const elsewhere = (sb, port = 8000) => `http://${port}-${sb.id}.localhost:${new URL(server).port}/`;

/** hostile is HTML that tries to reach the console that shows it, and says what happened. */
const hostile = (sb) => `<p id="said"></p><script>(async () => {
	const got = {};
	const attempt = async (name, f) => { try { got[name] = String(await f()); } catch { got[name] = "refused"; } };
	const loaded = (e) => new Promise((done) => { e.onload = () => done("loaded"); e.onerror = () => done("refused"); document.head.append(e); });
	await attempt("origin", () => origin);
	await attempt("document", () => parent.document.title);
	await attempt("storage", () => localStorage.length);
	await attempt("cookie", () => document.cookie);
	await attempt("read", async () => (await fetch("${console_}/v1/whoami", { credentials: "include" })).status);
	await attempt("send", async () => (await fetch("${server}/healthz", { mode: "no-cors" })).type);
	await attempt("beacon", () => (navigator.sendBeacon("${console_}/v1/sandboxes", "{}"), fetch("${server}/", { method: "POST", mode: "no-cors" })));
	await attempt("websocket", () => new Promise((done) => { const ws = new WebSocket("${console_.replace("http", "ws")}/v1/x"); ws.onopen = () => done("open"); ws.onerror = () => done("refused"); }));
	await attempt("picture", () => loaded(Object.assign(new Image(), { src: "${console_}/icon.svg" })));
	await attempt("script", () => loaded(Object.assign(document.createElement("script"), { src: "${console_}/v1/whoami" })));
	await attempt("window", () => (window.open("${console_}/") ? "open" : "refused"));
	await attempt("top", () => { top.location.href = "${server}/healthz"; return "gone"; });
	await attempt("around", () => { parent.location.href = "${elsewhere(sb)}around"; return "gone"; });
	await attempt("around it all", () => (parent.document.title, "read"));
	await attempt("peer", () => new RTCPeerConnection());
	said.textContent = JSON.stringify(got);
})()</script>`;

test("HTML that code shows reaches neither the console nor another host", async () => {
	const sb = await shared();
	const page = await open(sb);
	const answered = []; // of the frames' requests
	page.on("response", (r) => r.frame() !== page.mainFrame() && answered.push(r.url()));
	await write(page, 1, `from IPython.display import HTML\nHTML(${JSON.stringify(hostile(sb))})`);
	await page.keyboard.press("Control+Enter");
	const got = JSON.parse(await html(page, 1).locator("#said:not(:empty)").textContent());
	assert.equal(got.origin, "null");
	for (const [what, result] of Object.entries(got)) assert.match(result, /^(null|refused)$/, `${what}: ${result}`);
	assert.deepEqual(answered, [`${console_}/output.html`]);

	// It cannot go to another page either, which would have the look of the console around it, and to which the address brings data.
	for (const [i, go] of [(url) => `location.href = "${url}"`, (url) => `document.head.innerHTML = '<meta http-equiv="refresh" content="0;url=${url}">'`,
		(url) => `document.body.innerHTML = '<iframe src="${url}"></iframe>'`].entries()) {
		const url = `${elsewhere(sb, 8001 + i)}?secret`;
		// Each has a host of its own: the browser may say twice what it refuses.
		const violated = page.waitForEvent("console", (m) => /frame-src/.test(m.text()) && m.text().includes(new URL(url).host));
		await page.getByRole("button", { name: "Add a cell" }).click();
		await write(page, i + 2, `from IPython.display import HTML\nHTML(${JSON.stringify(`<p>before</p><script>${go(url)}</script>`)})`);
		await page.keyboard.press("Control+Enter");
		await violated;
		// The events of a frame come apart from those of the page.
		for (const end = Date.now() + patience; answered.length < i + 2; await new Promise((done) => setTimeout(done, 50))) assert.ok(Date.now() < end, "no answer to the frame");
		assert.deepEqual(answered, Array(i + 2).fill(`${console_}/output.html`));
	}
	assert.equal(new URL(page.url()).origin, console_);
	await cell(page, 1).getByRole("button", { name: "Run cell 1" }).waitFor(); // the page works on
});

test("HTML that code shows sends nothing by WebRTC", async (t) => {
	const sb = await shared();
	const page = await open(sb);
	const socket = createSocket("udp4");
	t.after(() => socket.close());
	let received = 0;
	socket.on("message", () => received++);
	socket.bind(0, "127.0.0.1");
	await once(socket, "listening");
	const send = `const peer = new RTCPeerConnection({ iceServers: [{ urls: "stun:127.0.0.1:${socket.address().port}" }] }); peer.createDataChannel("x"); peer.createOffer().then((o) => peer.setLocalDescription(o));`;
	// A new frame has the interface that was taken from the window. The browser ends the page that uses it.
	const crashed = page.waitForEvent("crash");
	await write(page, 1, `from IPython.display import HTML\nHTML(${JSON.stringify(`<script>document.body.innerHTML = '<iframe></iframe>'; document.querySelector("iframe").srcdoc = ${JSON.stringify(`<script>${send}<\/script>`).replaceAll("</", "<\\/")}</script>`)})`);
	await page.keyboard.press("Control+Enter");
	await crashed;
	assert.equal(received, 0, "packets");
});

test("results of any shape leave the page as it is", async () => {
	const page = await open(await shared());
	await write(page, 1, `from IPython.display import display
table = "application/vnd.dataresource+json"
for bad in [7, "x", [], {}, {"schema": None, "data": []}, {"schema": {"fields": 5}, "data": []}, {"schema": {"fields": [None]}, "data": []}, {"schema": {"fields": []}, "data": [None]}]:
    display({table: bad, "text/plain": "no table"}, raw=True)
display({table: {"schema": {"fields": [{"name": f"c{i}"} for i in range(300)]}, "data": [{"c0": "a" * 5000}], "total_rows": "many"}}, raw=True)
display({"application/pdf": "%"}, raw=True)
"the end"`);
	await page.keyboard.press("Control+Enter");
	const shownThere = output(page, 1);
	await shownThere.getByText("'the end'").waitFor();
	assert.equal(await shownThere.getByRole("columnheader").count(), 200);
	await shownThere.getByText("1 row × 300 columns, of which the first 200 columns are shown").waitFor();
	await shownThere.getByRole("button", { name: "Download the PDF" }).click();
	await shownThere.getByText("its data is not base64").waitFor();

	// Nor does an event with another form than the API says.
	const events = [{ type: "result", result: { data: null } }, { type: "result", result: { data: { "text/plain": "after it" } } }, { type: "end", status: "ok" }];
	await page.route("**/code/stream", (route) => route.fulfill({ contentType: "application/x-ndjson", body: events.map((e) => `${JSON.stringify(e)}\n`).join("") }));
	await page.getByRole("button", { name: "Add a cell" }).click();
	await write(page, 2, "1");
	await page.keyboard.press("Control+Enter");
	await output(page, 2).getByText("after it").waitFor();
	await output(page, 2).getByRole("alert").getByText("This output cannot be shown").waitFor();
	await shown(page, "notebook-shapes");
	clean(page);
});

test("cells wait for their turn without a connection", async () => {
	const page = await open(await shared());
	let streams = 0;
	page.on("request", (r) => r.url().endsWith("/code/stream") && streams++);
	await write(page, 1, "import time; time.sleep(600)");
	await page.keyboard.press("Control+Enter");
	await ended(page, 1, "running");
	for (let n = 2; n <= 8; n++) {
		await page.getByRole("button", { name: "Add a cell" }).click();
		await write(page, n, `print("cell", ${n})`);
		await page.keyboard.press("Control+Enter");
		await ended(page, n, "waiting for cell 1");
	}
	// Another context does not wait for this one.
	await page.getByRole("button", { name: "Add a cell" }).click();
	await cell(page, 9).getByLabel("Language of cell 9").selectOption("Bash");
	await write(page, 9, "echo $((6 * 7))");
	await page.keyboard.press("Control+Enter");
	await output(page, 9).getByText("42", { exact: true }).waitFor();
	assert.equal(streams, 2);

	await cell(page, 3).getByRole("button", { name: "Interrupt cell 3" }).click();
	await ended(page, 3, "interrupted");
	await ended(page, 1, "running");
	await cell(page, 1).getByRole("button", { name: "Interrupt cell 1" }).click();
	await ended(page, 1, "interrupted");
	for (const n of [2, 4, 5, 6, 7, 8]) await output(page, n).getByText(`cell ${n}`, { exact: true }).waitFor();
	await output(page, 3).getByText("It did not run.").waitFor();
	assert.equal(streams, 8);
	clean(page);
});

test("a restart drops the cells that wait for the context", async () => {
	const page = await open(await shared());
	let streams = 0;
	page.on("request", (r) => r.url().endsWith("/code/stream") && streams++);
	await write(page, 1, "import time; time.sleep(600)");
	await page.keyboard.press("Control+Enter");
	await ended(page, 1, "running");
	for (const n of [2, 3]) {
		await page.getByRole("button", { name: "Add a cell" }).click();
		await write(page, n, `print("cell", ${n})`);
		await page.keyboard.press("Control+Enter");
		await ended(page, n, "waiting for cell 1");
	}
	await page.getByRole("button", { name: "Restart Python" }).click();
	await confirmed(page, "Restart");
	for (const n of [2, 3]) {
		await ended(page, n, "interrupted");
		await output(page, n).getByText("It did not run.").waitFor();
	}
	await cell(page, 1).getByRole("button", { name: "Run cell 1" }).waitFor(); // it has ended
	assert.equal(streams, 1);
	await cell(page, 2).getByRole("button", { name: "Run cell 2" }).click();
	await output(page, 2).getByText("cell 2", { exact: true }).waitFor();
	clean(page);
});

test("no cell runs after a sign-out", async () => {
	const page = await open(await shared());
	let streams = 0;
	page.on("request", (r) => r.url().endsWith("/code/stream") && streams++);
	await write(page, 1, "import time; time.sleep(600)");
	await page.getByRole("button", { name: "Add a cell" }).click();
	await write(page, 2, "1");
	await page.getByRole("button", { name: "Run all" }).click();
	await ended(page, 1, "running");
	const aborted = page.waitForEvent("requestfailed", (r) => r.url().endsWith("/code/stream"));
	await page.getByRole("button", { name: "theme and sign-out" }).click();
	await page.getByRole("menuitem", { name: "Sign out" }).click();
	await aborted;
	// The next user signs in to the same page.
	await page.getByRole("button", { name: "Use an API token" }).click();
	await page.getByLabel("API token").fill(token);
	await page.getByRole("button", { name: "Sign in", exact: true }).click();
	await page.getByRole("toolbar", { name: "Notebook" }).waitFor();
	await cell(page, 1).waitFor();
	await cell(page, 2).waitFor({ state: "detached" });
	// The turns are free.
	await write(page, 1, "print(6 * 7)");
	await page.keyboard.press("Control+Enter");
	await output(page, 1).getByText("42", { exact: true }).waitFor();
	assert.equal(streams, 2);
	clean(page);
});

test("a stream that falls silent ends", async () => {
	const page = await visit();
	await page.clock.install();
	await page.addInitScript(() => {
		const real = window.fetch;
		window.fetch = (url, init) => {
			if (!String(url).endsWith("/code/stream")) return real(url, init);
			const start = (c) => {
				c.enqueue(new TextEncoder().encode('{"type":"started"}\n'));
				init.signal.addEventListener("abort", () => c.error(init.signal.reason));
			};
			return Promise.resolve(new Response(new ReadableStream({ start })));
		};
	});
	await signInByToken(page);
	await page.goto(`${console_}/sandboxes/${(await shared()).id}/notebook`);
	await write(page, 1, "1");
	await page.keyboard.press("Control+Enter");
	await ended(page, 1, "running");
	await page.getByRole("button", { name: "Add a cell" }).click();
	await write(page, 2, "2");
	await page.keyboard.press("Control+Enter");
	await ended(page, 2, "waiting for cell 1");
	await page.clock.fastForward(46_000);
	await ended(page, 1, "lost");
	await output(page, 1).getByText("said nothing for 45 seconds").waitFor();
	await ended(page, 2, "running");
	await cell(page, 2).getByRole("button", { name: "Interrupt cell 2" }).click();
	await page.clock.fastForward(21_000);
	await ended(page, 2, "interrupted");
	await output(page, 2).getByText("did not say how the code ended").waitFor();
	clean(page);
});

test("outputs give way when the browser has no room, and code does not", async () => {
	const page = await open(await shared());
	/** fill leaves room for so many characters in the browser's session. */
	const fill = (room) => page.evaluate((room) => {
		let size = 0;
		sessionStorage.removeItem("filler");
		for (let step = 1 << 22; step >= 1; step >>= 1) {
			try {
				sessionStorage.setItem("filler", "x".repeat(size + step));
				size += step;
			} catch {}
		}
		sessionStorage.setItem("filler", "x".repeat(size - room));
	}, room);
	const other = () => page.evaluate(() => JSON.parse(sessionStorage.getItem("modbox.notebook.another"))[0]);
	const notice = (text) => page.getByRole("alert").getByText(text).waitFor();
	const print = async (n, length) => {
		await write(page, n, `print("x" * ${length})`);
		await page.keyboard.press("Control+Enter");
		await output(page, n).locator("pre", { hasText: new RegExp(`^x{${length}}`) }).waitFor();
	};
	for (const n of [2, 3]) {
		await page.getByRole("button", { name: "Add a cell" }).click();
		await cell(page, n).waitFor();
	}
	await page.evaluate(() => sessionStorage.setItem("modbox.notebook.another", JSON.stringify([{ id: "a", where: "python", code: "other code", state: "ok", outputs: [{ kind: "text", stream: "stdout", text: "y".repeat(100_000) }] }])));

	// First those of this notebook.
	await fill(5000);
	await print(1, 20_000);
	await notice("no room for the outputs of this notebook");
	await shown(page, "notebook-room");
	assert.equal((await other()).outputs[0].text.length, 100_000);
	await page.reload();
	await output(page, 1).getByText("too large to be kept").waitFor();
	await cell(page, 3).waitFor();
	assert.equal(await output(page, 3).count(), 0, "notes of a cell without outputs");

	// Then those of other sandboxes.
	await fill(0);
	await print(2, 30_000);
	await notice("the outputs of notebooks of other sandboxes were dropped");
	const { code, outputs } = await other();
	assert.equal(code, "other code");
	assert.deepEqual(outputs.map((o) => o.kind), ["note"]);

	// What was stored of the code stays.
	await page.reload();
	await output(page, 2).waitFor();
	await fill(0);
	await write(page, 3, `# ${"z".repeat(60_000)}`);
	await notice("no room for the cells of this notebook");
	await page.reload();
	await cell(page, 2).getByText("30000").first().waitFor();
	assert.equal((await other()).code, "other code");
	clean(page);
});
