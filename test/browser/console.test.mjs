// The web console in a browser of this machine: a real server, real sandboxes.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { delimiter, join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { api, begin, clean, confirmed, console_, inState, made, mark, patience, root, sandbox, shown, signIn, signInByToken, until, user, visit } from "./kit.mjs";

begin();

test("the first load is small, and asks no other host", async () => {
	const page = await visit();
	const hosts = new Set();
	page.on("request", (r) => hosts.add(new URL(r.url()).origin));
	await page.goto(`${console_}/`, { waitUntil: "networkidle" });
	await page.evaluate(() => document.fonts.ready);
	const sum = await page.evaluate(() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].reduce((n, e) => n + e.encodedBodySize, 0));
	assert.ok(sum > 50 * 1024 && sum <= 300 * 1024, `the first load has ${Math.round(sum / 1024)} KiB`);
	assert.deepEqual([...hosts], [console_]);
	clean(page);
});

test("people sign in by a code, by a password and by a token, and sign out", async () => {
	const code = (await api("POST", "/users", { name: `ada-${mark}` })).code;
	const page = await visit();
	await page.goto(`${console_}/`);
	await page.getByRole("heading", { name: "Sign in" }).waitFor();
	await shown(page, "sign-in");
	await page.getByLabel("Name or e-mail address").fill(`ada-${mark}`);
	await page.getByLabel("Password").fill("a guess");
	await page.getByRole("button", { name: "Sign in", exact: true }).click();
	await page.getByRole("alert").getByText("the user or the password is wrong").waitFor();

	await page.getByRole("button", { name: "Use a code" }).click();
	await page.getByLabel("Code", { exact: true }).fill(code);
	await page.getByLabel("New password").fill("correct horse battery");
	await page.getByRole("button", { name: "Sign in", exact: true }).click();
	await page.getByRole("button", { name: "theme and sign-out" }).click();
	await page.getByRole("menuitem", { name: "Sign out" }).click();
	await page.getByRole("heading", { name: "Sign in" }).waitFor();
	assert.deepEqual(await page.context().cookies(console_), [], "cookies after the sign-out");

	await signIn(page, `ada-${mark}`);
	const [cookie] = await page.context().cookies(console_);
	assert.equal(cookie.name, "__Host-modbox-session");
	assert.ok(cookie.httpOnly && cookie.secure && cookie.sameSite === "Strict", JSON.stringify(cookie));
	assert.equal(await page.evaluate(() => document.cookie), "");
	await page.reload();
	await page.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();

	// A sign-out in one tab is one in all.
	const tab = await page.context().newPage();
	await tab.goto(`${console_}/`);
	await tab.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();
	await tab.evaluate(() => sessionStorage.setItem("modbox.notebook.x", "kept"));
	await page.getByRole("button", { name: "theme and sign-out" }).click();
	await page.getByRole("menuitem", { name: "Sign out" }).click();
	await tab.getByRole("heading", { name: "Sign in" }).waitFor();
	assert.equal(await tab.evaluate(() => sessionStorage.length), 0, "what the other tab keeps");
	clean(page);

	const other = await visit();
	await signInByToken(other);
	await other.getByRole("button", { name: "theme and sign-out" }).click();
	await other.getByRole("menuitem", { name: "Sign out" }).click();
	await other.getByRole("heading", { name: "Sign in" }).waitFor();
	await api("GET", "/whoami"); // the token works on
	clean(other);
});

test("other services are offered for the sign-in, and one that refused says so", async () => {
	const page = await visit();
	await page.route("**/v1/auth/providers?*", (route) => route.fulfill({ json: { items: ["github", "Acme SSO"] } }));
	await page.goto(`${console_}/?sign_in=forbidden`);
	await page.getByRole("alert").getByText("may not sign in here").waitFor();
	const [github, acme] = [page.getByRole("link", { name: "Continue with github" }), page.getByRole("link", { name: "Continue with Acme SSO" })];
	assert.deepEqual([await github.getAttribute("href"), await acme.getAttribute("href")], ["/session/providers/github", "/session/providers/Acme%20SSO"]);
	await shown(page, "sign-in-services");
	clean(page);
});

test("a tab shows the user who signs in in another tab, and keeps nothing of the user before", async () => {
	const [before, after] = [await user("eve", "member"), await user("fay", "member")];
	const page = await visit();
	await signIn(page, before.name);
	await page.evaluate(() => sessionStorage.setItem("modbox.notebook.x", "kept"));
	const tab = await page.context().newPage();
	await page.context().clearCookies(); // as if the session had expired
	await signIn(tab, after.name);
	await page.getByRole("button", { name: new RegExp(`${after.name}.*theme and sign-out`) }).waitFor();
	assert.equal(await page.evaluate(() => sessionStorage.length), 0, "what the tab keeps");
	clean(page);
});

test("a session that is ended elsewhere leads to the sign-in", async () => {
	const { name } = await user("bea", "member");
	const page = await visit();
	await signIn(page, name);
	const session = await api("POST", "/auth/login", { username: name, password: "correct horse battery" });
	await api("DELETE", "/account/sessions", undefined, session.access_token);
	await page.getByText("Your session has ended").waitFor(); // without a click: the event stream says so
	await shown(page, "session-ended");
	clean(page);
});

test("a sandbox is created, used by the terminal, and destroyed", async () => {
	const page = await visit();
	await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin: console_ });
	await signInByToken(page);
	await page.keyboard.press("c");
	const dialog = page.getByRole("dialog", { name: "Create a sandbox" });
	await dialog.getByLabel("Image").fill("modbox/code-exec");
	await dialog.getByLabel("Name").fill(`made-${mark}`);
	await dialog.getByLabel("Memory").fill("much");
	await dialog.getByRole("button", { name: "Create", exact: true }).click();
	await dialog.locator("[aria-invalid=true]:focus").waitFor();
	assert.equal(await dialog.getByLabel("Memory").evaluate((e) => e === document.activeElement), true, "the keyboard is at the field");
	assert.equal(await dialog.getByRole("form").getByText("much").count(), 1, "how often the server's reason is shown");
	await shown(page, "create-refused");
	await dialog.getByLabel("Memory").fill("512Mi");
	await dialog.getByLabel("Lifetime").selectOption({ label: "1 hour" });
	await dialog.getByLabel("Published ports").fill("3000");
	await dialog.getByLabel("Environment variables").fill("GREETING=it's a test");
	await shown(page, "create");
	await dialog.getByRole("button", { name: "Create", exact: true }).click();

	await page.getByRole("heading", { name: `made-${mark}` }).waitFor();
	made.push((await api("GET", `/sandboxes/made-${mark}`)).id);
	await inState(page, `made-${mark}`, "running");
	await page.getByText("Processes").waitFor();
	await shown(page, "overview");

	await page.getByRole("tab", { name: "Terminal" }).click();
	await page.getByText("Connected.").waitFor();
	await page.keyboard.type('echo "$GREETING: $((6*7))"\n');
	await page.locator(".xterm-rows").getByText("it's a test: 42", { exact: true }).waitFor();
	await page.keyboard.type("printf '\\e[38;2;255;120;0mcoloured\\e[0m\\n'; stty size\n");
	await page.locator(".xterm-rows").getByText("coloured", { exact: true }).waitFor();
	await shown(page, "terminal");
	await page.locator(".xterm-screen").click();
	await page.keyboard.type("exit 3\n");
	await page.getByText("The shell ended with exit code 3.").waitFor();

	// A pause without memory ends the programs, and says so first.
	await page.getByRole("button", { name: "Kinds of pause" }).click();
	await shown(page, "pause-kinds");
	await page.getByRole("menuitem", { name: /^Pause without memory/ }).click();
	await page.getByRole("alertdialog").getByText("what they have in memory is lost").waitFor();
	await confirmed(page, "Pause without memory");
	const state = await inState(page, `made-${mark}`, "paused");
	await state.getByRole("img", { name: "without memory" }).waitFor();
	assert.equal((await api("GET", `/sandboxes/made-${mark}`)).paused_without_memory, true);
	await page.getByRole("tab", { name: "Overview" }).click();
	await page.getByText("files without memory").waitFor();
	await shown(page, "paused");
	await page.getByRole("button", { name: "Resume" }).click();
	await inState(page, `made-${mark}`, "running");
	await page.getByRole("button", { name: "Pause", exact: true }).click();
	await inState(page, `made-${mark}`, "paused");
	await page.getByText("memory and files").waitFor();
	assert.equal(await state.getByRole("img").count(), 0);

	await page.getByRole("tab", { name: /Events/ }).click();
	await page.getByRole("listitem").filter({ hasText: "running" }).first().waitFor();
	await shown(page, "events");

	await page.getByRole("button", { name: "Destroy" }).click();
	await confirmed(page, "Destroy");
	await inState(page, `made-${mark}`, "destroyed");
	clean(page);
});

test("the programs of the dialog make the same sandbox", async () => {
	const page = await visit();
	await signInByToken(page);
	await page.getByRole("button", { name: "Create", exact: false }).first().click();
	const dialog = page.getByRole("dialog", { name: "Create a sandbox" });
	await dialog.getByLabel("Image").fill("modbox/code-exec");
	await dialog.getByLabel("Memory").fill("256Mi");
	await dialog.getByLabel("Lifetime").selectOption({ label: "8 hours" });
	await dialog.getByLabel("When idle for").selectOption({ label: "30 minutes" });
	await dialog.getByLabel("Environment variables").fill("QUOTE=it's");
	assert.equal(await dialog.getByLabel("Allowed destinations").count(), 0, "fields for destinations without a network");
	await dialog.getByLabel("Access to the internet").check();
	await dialog.getByLabel("Allowed destinations").fill("198.51.100.0/24\nhttps://pypi.org");
	await dialog.getByLabel("Denied destinations").fill("0.0.0.0/0\n203.0.113.9");
	await dialog.getByRole("button", { name: "Create", exact: true }).click();
	await dialog.getByText("without scheme, port and path").first().waitFor(); // the server's reason, at the field
	assert.equal(await dialog.getByLabel("Allowed destinations").getAttribute("aria-invalid"), "true");
	assert.equal(await dialog.getByLabel("Denied destinations").getAttribute("aria-invalid"), null);
	await shown(page, "create-destinations");
	await dialog.getByLabel("Allowed destinations").fill("198.51.100.0/24\n*.pypi.org");
	await dialog.getByText("Requests to its servers").click();
	await dialog.getByLabel("Host that its servers see").fill("https://localhost");
	await dialog.getByLabel("Ports whose servers speak HTTPS").fill("8443, 70000");
	await dialog.getByText("from 1 to 65535").waitFor(); // before it is sent
	await dialog.getByRole("button", { name: "Create", exact: true, disabled: true }).waitFor();
	await dialog.getByLabel("Ports whose servers speak HTTPS").fill("8443");
	await dialog.getByRole("button", { name: "Create", exact: true }).click();
	await dialog.getByLabel("Host that its servers see").and(page.locator("[aria-invalid=true]:focus")).waitFor();
	await shown(page, "create-requests");
	await dialog.getByLabel("Host that its servers see").fill("localhost:${PORT}");
	const env = { ...process.env, PATH: `${join(root, "bin")}${delimiter}${process.env.PATH}` };
	for (const language of ["curl", "CLI", "TypeScript", "Python"]) {
		await dialog.getByLabel("Name").fill(`${language.toLowerCase()}-${mark}`);
		await dialog.getByRole("tab", { name: language }).click();
		const program = await dialog.getByLabel(`${language} program`, { exact: true }).textContent();
		const run = {
			TypeScript: ["node", ["--input-type=module", "--eval", program]],
			Python: ["/usr/bin/python3", ["-c", program]],
		}[language] ?? ["bash", ["-euc", program]];
		await promisify(execFile)(...run, { cwd: import.meta.dirname, env: { ...env, PYTHONPATH: join(root, "sdk/python/src") }, timeout: patience });
		const sb = await api("GET", `/sandboxes/${language.toLowerCase()}-${mark}`);
		made.push(sb.id);
		assert.deepEqual([sb.image, sb.resources.memory, sb.ttl_seconds, sb.timeouts.idle_seconds, sb.timeouts.on_idle], ["modbox/code-exec:latest", "256Mi", 28800, 1800, "pause"], language);
		assert.deepEqual([sb.network.enabled, sb.network.allow_out, sb.network.deny_out], [true, ["198.51.100.0/24", "*.pypi.org"], ["0.0.0.0/0", "203.0.113.9"]], language);
		assert.deepEqual([sb.network.request_host, sb.network.https_ports], ["localhost:${PORT}", [8443]], language);
		await api("DELETE", `/sandboxes/${sb.id}`);
	}
	clean(page);
});

test("the list is live, and is used by the keyboard", async () => {
	const page = await visit();
	await signInByToken(page);
	await page.getByText("Live", { exact: true }).waitFor();
	const list = [await sandbox("one"), await sandbox("two"), await sandbox("three")];
	const link = (sb) => page.getByRole("link", { name: sb.name });
	for (const sb of list) await link(sb).waitFor(); // they appear by themselves
	await page.locator(".row", { hasText: list[2].name }).locator(".state", { hasText: "running" }).waitFor();
	await shown(page, "list");

	await page.keyboard.press("/");
	await page.keyboard.type(`two-${mark}`);
	await link(list[0]).waitFor({ state: "detached" });
	await page.keyboard.press("Enter");
	await page.keyboard.press("j");
	await page.keyboard.press("x");
	await page.getByText("1 chosen").waitFor();
	await shown(page, "list-chosen");
	await page.getByRole("toolbar").getByRole("button", { name: "Pause" }).click();
	await page.getByRole("alertdialog").getByLabel("Save their memory").uncheck();
	await page.getByRole("alertdialog").getByText("what they have in memory is lost").waitFor();
	await shown(page, "list-pause");
	await confirmed(page, "Pause");
	await page.locator(".row", { hasText: list[1].name }).locator(".state", { hasText: "paused" }).getByRole("img", { name: "without memory" }).waitFor();

	await page.getByLabel("Search by name").fill(mark);
	const filter = (name) => page.getByRole("group", { name: "State" }).getByRole("button", { name }).click();
	await filter(/^Paused/);
	await link(list[0]).waitFor({ state: "detached" });
	await link(list[1]).waitFor();
	await filter(/^Running/);
	await link(list[1]).waitFor({ state: "detached" });
	await link(list[0]).waitFor();
	await filter(/^All/);
	await link(list[1]).waitFor();
	await page.getByRole("checkbox", { name: "Choose all" }).check();
	await page.getByRole("toolbar").getByRole("button", { name: "Destroy" }).click();
	await page.getByRole("alertdialog").getByText(list[1].name).waitFor();
	await shown(page, "confirm");
	await confirmed(page, "Destroy");
	await page.getByText("No sandbox fits").waitFor();
	await shown(page, "list-none");
	for (const sb of list) assert.match((await api("GET", `/sandboxes/${sb.id}`)).state, /destroy/);
	await filter("Ended");
	for (const sb of list) await page.locator(".row", { hasText: sb.name }).locator(".state", { hasText: "destroyed" }).waitFor();
	assert.equal(await page.getByRole("checkbox").count(), 0, "rows to choose");
	await shown(page, "list-ended");
	await filter(/^All/);

	await page.keyboard.press("Control+k");
	await page.getByPlaceholder("A command, or the name of a sandbox").fill("dark");
	await shown(page, "palette");
	await page.getByRole("option", { name: "Dark theme" }).click();
	await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
	clean(page);
});

test("what was read late undoes nothing, and what could not be read is read again", async () => {
	const [listed, paused, ended] = [await sandbox("listed"), await sandbox("early-paused"), await sandbox("early-ended")];
	const page = await visit();
	const row = (sb) => page.locator(".row", { hasText: sb.name });
	await page.addInitScript(() => { // lists come later, as they were when they were asked for
		const [fetched, held] = [window.fetch, new Promise((done) => { window.release = done; })];
		window.asked = 0;
		window.fetch = async (...call) => {
			if (!String(call[0]).includes("/sandboxes?state=")) return fetched(...call);
			const number = ++window.asked;
			const body = await (await fetched(...call)).text();
			window.read = number;
			await held;
			return new Response(body);
		};
	});
	await signInByToken(page);
	await page.getByText("Live", { exact: true }).waitFor();
	await page.waitForFunction(() => window.asked >= 2 && window.read === window.asked); // the second when the event stream was there, which ends the first
	await api("POST", `/sandboxes/${paused.id}/pause`);
	await api("DELETE", `/sandboxes/${ended.id}`);
	await api("GET", `/sandboxes/${ended.id}/wait?state=destroyed&timeout_seconds=100`);
	const created = await sandbox("early-running");
	for (const [sb, state] of [[paused, "paused"], [created, "running"]]) await row(sb).locator(".state", { hasText: state }).waitFor();
	await until(async () => (await row(ended).count()) === 0, () => "the ended sandbox is shown");
	await page.evaluate(() => window.release());
	await row(listed).waitFor(); // the list is here
	for (const [sb, state] of [[paused, "paused"], [created, "running"]]) assert.equal(await row(sb).locator(".state").textContent(), state, sb.name);
	assert.equal(await row(ended).count(), 0, "rows of the ended sandbox");

	const other = await page.context().newPage();
	let failed = 0;
	await other.route("**/v1/sandboxes?state=*", (route) => (failed++ < 2 ? route.abort() : route.continue()));
	await other.goto(`${console_}/`);
	const link = other.getByRole("link", { name: listed.name });
	await link.waitFor(); // without a click
	await other.getByRole("alert").waitFor({ state: "detached" });
	assert.ok(failed > 2, `${failed} lists`);

	await link.click();
	await inState(other, listed.id, "running");
	let away = true, lost = 0;
	await other.route(`**/v1/sandboxes/${listed.id}`, (route) => {
		if (!away) return route.continue();
		lost++;
		return route.abort();
	});
	await api("POST", `/sandboxes/${listed.id}/pause`);
	await other.getByRole("tab", { name: /Events/ }).click();
	await other.getByRole("list", { name: "Events, the newest first" }).getByText("paused", { exact: true }).waitFor();
	await until(async () => lost > 0, () => "the page reads the sandbox after an event");
	// A read that was sent before may have answered "pausing".
	assert.notEqual(await other.locator(".page-head .state").textContent(), "paused");
	away = false;
	await inState(other, listed.id, "paused");
	clean(page);
});

test("an action on many sandboxes ends when the user stops waiting", async () => {
	const page = await visit();
	await page.clock.install();
	await signInByToken(page);
	const list = await Promise.all([1, 2, 3, 4, 5, 6].map((n) => sandbox(`many${n}`, { resources: { memory: "256Mi" } })));
	await page.getByLabel("Search by name").fill(`many ${mark}`);
	for (const sb of list) await page.locator(".row", { hasText: sb.name }).locator(".state", { hasText: "running" }).waitFor();
	let sent = 0, aborted = 0;
	await page.route("**/pause", (route) => { if (sent++ === 0) return route.continue(); }); // the others get no answer
	page.on("requestfailed", (r) => { if (r.url().endsWith("/pause")) aborted++; });

	await page.getByRole("checkbox", { name: "Choose all" }).check();
	await page.getByRole("toolbar").getByRole("button", { name: "Pause" }).click();
	const dialog = page.getByRole("alertdialog");
	await dialog.getByRole("button", { name: "Pause", exact: true }).click();
	await until(() => sent === 5, () => `${sent} requests of 6`); // four at a time, and one was answered
	await dialog.getByRole("button", { name: "Cancel", disabled: true }).waitFor();
	await page.clock.fastForward(11_000);
	await dialog.getByRole("button", { name: "Stop waiting" }).click();
	await dialog.getByRole("alert").getByText("may have taken effect").waitFor();
	await page.getByText("You stopped: 1 of 6 paused.").waitFor();
	await until(() => aborted === 4, () => `${aborted} of 4 requests ended`);
	await shown(page, "bulk-stopped");
	await dialog.getByRole("button", { name: "Cancel" }).click();
	await dialog.waitFor({ state: "detached" });
	assert.equal(sent, 5, "requests after the stop");
	const states = await Promise.all(list.map(async (sb) => (await api("GET", `/sandboxes/${sb.id}`)).state));
	assert.deepEqual(states.sort(), ["paused", "running", "running", "running", "running", "running"]);

	// Nothing is left of it: the same action works.
	await page.unroute("**/pause");
	await page.getByRole("toolbar").getByRole("button", { name: "Pause" }).click();
	await dialog.getByText("Pause 5 running sandboxes?").waitFor();
	assert.equal(await dialog.getByRole("alert").count(), 0);
	await confirmed(page, "Pause");
	await page.getByText("5 sandboxes paused").waitFor();
	clean(page);
});

test("a viewer sees no action", async () => {
	const sb = await sandbox("seen");
	const { name, workspace } = await user("vic", "viewer");
	const page = await visit();
	await signIn(page, name); // in the workspace of the user's own
	await page.getByRole("button", { name: /^Workspace/ }).click();
	await page.getByRole("menuitem", { name: /^default viewer/ }).click();
	await page.getByRole("link", { name: sb.name }).waitFor();
	assert.equal(await page.getByRole("button", { name: /create/i }).count(), 0);
	assert.equal(await page.getByRole("checkbox").count(), 0);
	await page.keyboard.press("c");
	await page.getByRole("button", { name: `Actions for ${sb.name}` }).click();
	assert.deepEqual(await page.getByRole("menuitem").allTextContents(), ["Copy the id"]);
	await page.keyboard.press("Escape");
	await page.getByRole("link", { name: sb.name }).click();
	await page.getByRole("heading", { name: sb.name }).waitFor();
	await page.getByText("Processes").waitFor();
	assert.equal(await page.getByRole("dialog").count(), 0);
	assert.deepEqual(await page.getByRole("tab").evaluateAll((tabs) => tabs.map((t) => t.firstChild.textContent)), ["Overview", "Commands", "Use", "Checkpoints", "Events"]);
	for (const action of ["Pause", "Resume", "Destroy"]) assert.equal(await page.getByRole("button", { name: action }).count(), 0, action);
	assert.equal(await page.getByRole("link", { name: "Open its page" }).count(), 0, "the sandbox's URL");
	await shown(page, "viewer");
	// Its page asks for nothing that the role does not permit; the server would refuse it.
	assert.equal(await page.evaluate(async ({ id, workspace }) => (await fetch(`/w/${workspace}/v1/sandboxes/${id}`, { method: "DELETE" })).status, { id: sb.id, workspace }), 403);
	clean(page);
});

/** hostile is a page of a sandbox that tries to reach the console of its visitor, and says what happened. It gets nothing. */
const hostile = `<!doctype html><title>hostile</title><script>
async function attack(at, victim) {
	const got = {};
	const attempt = async (name, f) => { try { got[name] = await f(); } catch (err) { got[name] = "refused"; } };
	const read = (path, init) => async () => { const r = await fetch(at + path, { credentials: "include", ...init }); return r.type === "opaque" ? "opaque" : "read " + (await r.text()).slice(0, 80); };
	await attempt("read", read("/v1/sandboxes"));
	await attempt("read without cors", read("/v1/whoami", { mode: "no-cors" }));
	await attempt("page", read("/"));
	await attempt("destroy", read("/v1/sandboxes/" + victim, { method: "DELETE" }));
	await attempt("pause", read("/v1/sandboxes/" + victim + "/pause", { method: "POST", mode: "no-cors" }));
	await attempt("sign out", read("/session", { method: "DELETE" }));
	await attempt("sign in", read("/session", { method: "POST", mode: "no-cors", body: "{}" }));
	await attempt("websocket", () => new Promise((done) => { const ws = new WebSocket(at.replace("http", "ws") + "/v1/sandboxes/" + victim + "/exec/attach"); ws.onopen = () => done("open"); ws.onerror = () => done("refused"); }));
	await attempt("events", () => new Promise((done) => { const es = new EventSource(at + "/v1/events/stream", { withCredentials: true }); es.onopen = () => done("open"); es.onerror = () => { es.close(); done("refused"); }; }));
	await attempt("script", () => new Promise((done) => { const s = document.createElement("script"); s.src = at + "/v1/whoami"; s.onload = () => done("loaded"); s.onerror = () => done("refused"); document.head.append(s); }));
	await attempt("frame", () => new Promise((done) => { const f = document.createElement("iframe"); f.src = at + "/"; f.onload = () => { try { done("inside: " + f.contentDocument.title); } catch { done("closed"); } }; document.body.append(f); setTimeout(() => done("no load"), 5000); }));
	await attempt("cookie", () => { for (const domain of ["", "; domain=localhost", "; domain=console.localhost"]) document.cookie = "__Host-modbox-session=evil; secure; path=/" + domain; return document.cookie.includes("mb") ? document.cookie : "nothing"; });
	return got;
}
</script><body>`;

test("a hostile page of a sandbox cannot reach the console", async () => {
	const victim = await sandbox("victim");
	const evil = await sandbox("evil", { network: { ports: [3000] } });
	const serve = `import http.server, base64
seen = []
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        seen.append(self.headers.get("Cookie", ""))
        self.send_response(200); self.send_header("Content-Type", "text/html"); self.send_header("Set-Cookie", "__Host-modbox-session=evil; Path=/; Secure"); self.end_headers()
        self.wfile.write(("\\n".join(seen)).encode() if self.path == "/seen" else base64.b64decode("${Buffer.from(hostile).toString("base64")}"))
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 3000), H).serve_forever()`;
	await api("POST", `/sandboxes/${evil.id}/executions`, { kind: "job", command: ["python3", "-c", serve] });
	const [{ url }] = (await api("GET", `/sandboxes/${evil.id}/ports`)).items;

	const page = await visit({ permissions: ["local-network-access"] });
	await signInByToken(page);
	const before = await page.context().cookies(console_);
	const bad = await page.context().newPage();
	// The server in the sandbox takes a moment to listen.
	for (const end = Date.now() + patience; ; await new Promise((done) => setTimeout(done, 200))) {
		const answer = await bad.goto(url);
		if (answer.ok()) break;
		assert.ok(Date.now() < end && answer.headers()["x-modbox-error"] === "port_closed", `${answer.status()}: ${await answer.text()}`);
	}
	assert.match(new URL(bad.url()).hostname, /^p3000-[a-z0-9]+\.localhost$/);
	assert.equal(await bad.title(), "hostile");
	const got = await bad.evaluate(([at, victim]) => window.attack(at, victim), [console_, victim.id]);
	for (const [what, result] of Object.entries(got)) assert.match(result, /^(refused|opaque|closed|no load|nothing)$/, `${what}: ${result}`);

	// A window that it opens is not in its hands, and has no opener.
	const [opened] = await Promise.all([bad.context().waitForEvent("page"), bad.evaluate((at) => { window.w = window.open(at); }, `${console_}/`)]);
	await opened.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor(); // a navigation, which shows the visitor's console to the visitor
	assert.equal(await opened.evaluate(() => window.opener), null);
	await bad.waitForFunction(() => window.w.closed);
	// Nor is the console the opener of pages that it leads to.
	await page.goto(`${console_}/sandboxes/${evil.id}`);
	const [led] = await Promise.all([page.context().waitForEvent("page"), page.getByRole("link", { name: url }).click()]);
	await led.waitForLoadState();
	assert.equal(await led.title(), "hostile");
	assert.equal(await led.evaluate(() => window.opener), null);
	assert.equal(await led.evaluate(() => document.referrer), "");

	// Pages of sandboxes are not at the console's host, whatever the path.
	const label = new URL(url).pathname;
	await bad.goto(`${console_}${label}/`);
	assert.notEqual(await bad.title(), "hostile");
	// The API's answers are no pages there: a navigation to one is refused.
	assert.equal((await bad.goto(`${console_}/v1/whoami`)).status(), 403);

	assert.deepEqual(await page.context().cookies(console_), before, "the console's cookies");
	await page.goto(`${console_}/`);
	await page.getByRole("link", { name: victim.name }).waitFor(); // still signed in
	assert.equal((await api("GET", `/sandboxes/${victim.id}`)).state, "running");
	const seen = await (await fetch(`${url}/seen`)).text();
	const sent = before[0].value;
	assert.ok(!seen.includes(sent), "the sandbox saw the console's cookie");
	clean(page);
});
