// The pages of tokens, members, quotas, registries, the audit log and the host in the web console.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { api, begin, clean, confirmed, console_, mark, shown, signIn, signInByToken, user, visit } from "./kit.mjs";

begin();

const session = async (name) => (await api("POST", "/auth/login", { username: name, password: "correct horse battery" })).access_token;

test("a token is made, shown once, and revoked", async () => {
	const { name } = await user("tok", "member");
	const page = await visit();
	await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin: console_ });
	await signIn(page, name);
	await page.getByRole("link", { name: "Tokens" }).click();
	await page.getByText("No tokens").waitFor();
	await shown(page, "tokens-none");
	await page.getByRole("button", { name: "Create a token" }).first().click();
	const dialog = page.getByRole("dialog", { name: "Create a token" });
	await dialog.locator("input:focus").waitFor();
	await page.keyboard.type("CI of the shop");
	await dialog.getByLabel("It works for").selectOption({ label: "30 days" });
	await dialog.getByLabel(/^Only this workspace/).check();
	await dialog.getByLabel(/^Only some permissions/).check();
	await dialog.getByLabel("sandboxes:read").check();
	await shown(page, "tokens-create");
	await dialog.getByRole("button", { name: "Create", exact: true }).click();
	const text = await dialog.getByLabel("Token", { exact: true }).inputValue();
	await dialog.getByRole("button", { name: "Copy: Token" }).click();
	assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
	assert.deepEqual((await api("GET", "/whoami", undefined, text)).permissions, ["sandboxes:read"]);
	await dialog.getByRole("button", { name: "Done" }).click();
	await page.getByText("CI of the shop").waitFor();
	assert.ok(!(await page.content()).includes(text), "the token is shown again");
	await shown(page, "tokens");
	await page.getByRole("button", { name: "Revoke CI of the shop" }).click();
	await confirmed(page, "Revoke");
	await page.getByText("No tokens").waitFor();
	await assert.rejects(api("GET", "/whoami", undefined, text), /401/);

	// The session ends elsewhere.
	await api("DELETE", "/account/sessions", undefined, await session(name));
	await page.getByText("Your session has ended").waitFor();
	clean(page);
});

test("a workspace is made, its members are added, invited, changed and removed", async () => {
	const owner = await user("own", "member");
	const friend = await user("fri", "member");
	const page = await visit();
	await signIn(page, owner.name);
	await page.getByRole("link", { name: "Workspace", exact: true }).click();
	await page.getByRole("button", { name: "New workspace" }).click();
	await page.getByLabel("Name", { exact: true }).fill(`Team ${mark}`);
	// The form is busy until the new workspace is loaded: a second Enter makes no second workspace.
	let made = 0;
	page.on("request", (r) => r.method() === "POST" && r.url().endsWith("/v1/workspaces") && made++);
	let load = () => {};
	const held = new Promise((done) => (load = done));
	const loading = page.waitForRequest("**/v1/workspaces?*");
	await page.route("**/v1/workspaces?*", (route) => held.then(() => route.continue()));
	await page.keyboard.press("Enter");
	await loading;
	await page.getByRole("button", { name: "Working…" }).waitFor();
	await page.keyboard.press("Enter");
	load();
	await page.getByRole("heading", { name: `Team ${mark}` }).waitFor(); // it is chosen at once
	await page.unroute("**/v1/workspaces?*");
	assert.equal(made, 1, "requests for a workspace");
	await page.getByRole("button", { name: "Change…" }).click();
	await page.getByLabel("Code before it runs").selectOption("warn");
	await page.getByRole("button", { name: "Save" }).click();
	await page.getByRole("main").getByText("scanned; findings are noted").waitFor(); // the dialog has it as a choice

	const add = async (who, role) => {
		await page.getByRole("button", { name: "Add…" }).click();
		await page.getByLabel("Name or e-mail address").fill(who);
		await page.getByRole("dialog").getByLabel("Role").selectOption(role);
		await page.getByRole("dialog").getByRole("button", { name: "Add", exact: true }).click();
	};
	await add(`nobody-${mark}`, "viewer");
	await page.getByRole("dialog").locator("[aria-invalid=true]:focus").waitFor(); // the reason is at the field
	await shown(page, "workspace-refused");
	await page.keyboard.press("Escape");
	await add(friend.name, "viewer");
	await page.getByRole("list", { name: "Members" }).getByText(friend.name).waitFor();
	await page.getByLabel(`Role of ${friend.name}`).selectOption("admin");
	await page.getByLabel(`Role of ${friend.name}`).and(page.locator("select:enabled:has(option[value=admin]:checked)")).waitFor();
	const address = `new-${mark}@example.com`;
	await add(address, "member");
	const code = await page.getByLabel("Code of the invitation", { exact: true }).inputValue();
	await shown(page, "workspace-invited");
	await page.getByRole("button", { name: "Done" }).click();
	await page.getByRole("list", { name: "Invitations" }).getByText(address).waitFor();
	await shown(page, "workspace");
	await page.getByRole("button", { name: `Withdraw the invitation of ${address}` }).click();
	await confirmed(page, "Withdraw");
	await page.getByRole("list", { name: "Invitations" }).waitFor({ state: "detached" }); // it was the only one
	await assert.rejects(api("POST", "/auth/accept", { code, name: `new-${mark}`, password: "correct horse battery" }), /40\d/);
	await page.getByRole("button", { name: `Remove ${friend.name}` }).click();
	await confirmed(page, "Remove");
	await page.getByRole("list", { name: "Members" }).getByText(friend.name).waitFor({ state: "detached" });

	// Its quota has bars; only administrators change it.
	await page.getByRole("link", { name: "Quota" }).click();
	await page.getByRole("meter", { name: "Disk" }).waitFor();
	assert.equal(await page.getByRole("button", { name: "Change…" }).count(), 0);

	// Registries: the password goes in, and never comes out.
	await page.getByRole("link", { name: "Registries" }).click();
	await page.getByText("No registries").waitFor();
	await shown(page, "registries-none");
	await page.getByRole("button", { name: "Add a registry" }).first().click();
	const dialog = page.getByRole("dialog", { name: "Add a registry" });
	await dialog.getByLabel("Name", { exact: true }).fill("images");
	await dialog.getByLabel("Server").fill("registry.example.com");
	await dialog.getByLabel("User name").fill("robot");
	await dialog.getByLabel("Password or token").fill("hunter-two-secret");
	await dialog.getByLabel(/^Ask the registry first/).uncheck();
	await dialog.getByRole("button", { name: "Add", exact: true }).click();
	await page.getByRole("list", { name: "Registries" }).getByText("as robot").waitFor();
	await shown(page, "registries");
	await page.getByRole("switch", { name: "Use images" }).click();
	await page.getByText("not used", { exact: true }).waitFor();
	await page.getByRole("button", { name: "Change images" }).click();
	const change = page.getByRole("dialog", { name: "Change images" });
	assert.equal(await change.getByLabel("Password or token").inputValue(), "");
	await change.getByRole("button", { name: "Cancel" }).click();
	await change.waitFor({ state: "detached" });
	assert.ok(!(await page.content()).includes("hunter-two"));
	await page.getByRole("button", { name: "Remove images" }).click();
	await confirmed(page, "Remove");
	await page.getByText("No registries").waitFor();

	await page.getByRole("link", { name: "Workspace", exact: true }).click();
	await page.getByRole("button", { name: "Delete…" }).click();
	await confirmed(page, "Delete the workspace");
	await page.getByRole("heading", { name: `Team ${mark}` }).waitFor({ state: "detached" });
	clean(page);
});

test("the audit log is filtered, paged and exported", async () => {
	const { name } = await user("aud", "viewer");
	const own = await session(name);
	const me = await api("GET", "/whoami", undefined, own);
	const page = await visit();
	await signIn(page, name); // in the user's own workspace
	for (let i = 0; i < 26; i++) await Promise.all([0, 1, 2, 3].map((j) => api("PATCH", `/workspaces/${me.workspace_id}`, { description: `change ${i}.${j}` }, own)));
	for (const formula of ["=SUM(1)", "a;@SUM(1)", "b; \"=SUM(1)"]) await api("POST", "/registries", { name: formula, server: "example.com", username: "u", password: "hunter-two-secret" }, own);
	await page.getByRole("link", { name: "Audit log" }).click();
	const records = page.getByRole("list", { name: "Records" }).getByRole("listitem");
	await records.first().getByText("create-registry").waitFor();
	assert.equal(await records.count(), 100);
	await page.getByRole("button", { name: "Show older records" }).click();
	await records.nth(104).waitFor(); // the button has another name meanwhile
	await page.getByRole("button", { name: "Show older records" }).waitFor({ state: "detached" });
	await records.first().getByRole("button").click();
	await records.first().getByText("request id").waitFor();
	await shown(page, "audit");
	await page.getByLabel("Action").fill("create-registry");
	await page.waitForFunction(() => document.querySelectorAll("[aria-label=Records] > li").length === 3);

	const exported = async (kind) => {
		await page.getByRole("button", { name: "Export" }).click();
		const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("menuitem", { name: kind }).click()]);
		return readFile(await file.path(), "utf8");
	};
	const lines = (await exported("JSON lines")).trim().split("\n").map((l) => JSON.parse(l));
	assert.deepEqual(lines.map((l) => [l.record.action, l.record.object_name, l.record.user_id]), ["b; \"=SUM(1)", "a;@SUM(1)", "=SUM(1)"].map((formula) => ["create-registry", formula, me.user_id]));
	const [head, quoted, split, row, end] = (await exported("CSV")).split("\r\n");
	assert.equal(end, "");
	assert.match(head, /^seq,time,action,outcome/);
	assert.match(row, /,create-registry,ok,/);
	assert.match(row, /,'=SUM\(1\),/, "a name that a spreadsheet would take for a formula");
	assert.match(split, /,a;'@SUM\(1\),/, "the same behind a character at which some divide cells");
	assert.match(quoted, /,"b; ""'=SUM\(1\)",/, "the same behind such a character, a space and a quote");

	await page.getByLabel("Action").fill("");
	await page.getByLabel("Search").fill("registry sum");
	await page.waitForFunction(() => document.querySelectorAll("[aria-label=Records] > li").length === 3);
	await page.getByLabel("Search").fill("registry sum a");
	await page.waitForFunction(() => document.querySelectorAll("[aria-label=Records] > li").length === 1);

	await page.getByLabel("Outcome").selectOption("failed");
	await page.getByText("No record fits").waitFor();
	await shown(page, "audit-none");
	await page.getByRole("button", { name: "Show all" }).click();
	await records.first().getByText("create-registry").waitFor();
	clean(page);
});

test("an administrator sees the host and sets quotas, and others do not", async () => {
	const page = await visit();
	await signInByToken(page);
	await page.getByRole("link", { name: "Host" }).click();
	await page.getByRole("meter", { name: "Disk used" }).waitFor();
	await page.getByRole("rowheader", { name: "Write to the database" }).waitFor();
	await shown(page, "host");
	const host = await api("GET", "/host");
	assert.ok(host.disk.total_bytes > host.disk.free_bytes && host.memory.total_bytes > 0 && host.cores > 0, JSON.stringify(host));

	await page.getByRole("link", { name: "Audit log" }).click();
	await page.getByRole("button", { name: "All workspaces" }).click();
	await page.getByRole("button", { name: "Verify" }).click();
	await page.getByText("records are unchanged").waitFor();

	const { workspace_id } = await api("GET", "/whoami");
	const before = (await api("GET", `/workspaces/${workspace_id}/quota`)).set;
	await page.getByRole("link", { name: "Quota" }).click();
	await page.getByRole("button", { name: "Change…" }).click();
	await page.getByRole("textbox", { name: "Sandboxes", exact: true }).fill("many");
	await page.getByRole("button", { name: "Save" }).click();
	await page.getByRole("alert").getByText("whole number").waitFor();
	await page.getByRole("textbox", { name: "Sandboxes", exact: true }).fill("900");
	await page.getByRole("button", { name: "Save" }).click();
	await page.getByText("of 900").waitFor();
	await shown(page, "quota");
	assert.equal((await api("GET", `/workspaces/${workspace_id}/quota`)).set.sandboxes, 900);
	await api("PUT", `/workspaces/${workspace_id}/quota`, before);
	clean(page);
});

test("a viewer sees no action on the pages, and is told what a closed page needs", async () => {
	const { name, id, workspace } = await user("view", "viewer");
	const page = await visit();
	await signIn(page, name);
	await page.getByRole("button", { name: /^Workspace/ }).click();
	await page.getByRole("menuitem", { name: /^default viewer/ }).click();
	await page.getByRole("button", { name: "Workspace default viewer" }).waitFor();
	const places = page.getByRole("navigation", { name: "Main" }).getByRole("link");
	assert.deepEqual((await places.allTextContents()).map((t) => t.trim()), ["Sandboxes", "Images", "Snapshots", "Registries", "Workspace", "Quota", "Tokens"]);
	const actions = async (path, ready) => {
		await page.goto(`${console_}${path}`);
		await ready.waitFor();
		return (await page.getByRole("main").getByRole("button").evaluateAll((list) => list.map((b) => b.getAttribute("aria-label") ?? b.textContent))).filter((t) => t !== "layers" && !t.startsWith("used by"));
	};
	const kinds = ["All", "On the disk", "Built in", "Pulled and built"]; // what is shown, no actions
	assert.deepEqual(await actions("/images", page.getByText("modbox/code-exec:latest")), kinds);
	await shown(page, "images-viewer");
	assert.deepEqual(await actions("/images/build", page.getByText("modbox/code-exec:latest")), kinds);
	assert.deepEqual(await actions("/snapshots", page.getByRole("heading", { name: "Snapshots", exact: true })), []);
	assert.deepEqual(await actions("/registries", page.getByText("No registries")), []);
	assert.deepEqual(await actions("/workspace", page.getByText("you", { exact: true })), ["New workspace", "Leave"]); // of the user's own
	assert.equal(await page.getByRole("main").getByRole("combobox").count(), 0, "roles to choose");
	assert.deepEqual(await actions("/quota", page.getByRole("meter", { name: "Disk" })), ["Measure again"]);
	for (const [path, permission] of [["/audit", "audit:read"], ["/host", "admin"]]) {
		await page.goto(`${console_}${path}`);
		await page.getByText("This page is closed to you").waitFor();
		await page.getByText(permission, { exact: true }).waitFor();
	}
	await shown(page, "closed");

	// The role changes while the page is open: what the server refuses is said.
	await api("PUT", `/workspaces/${workspace}/members/${id}`, { role: "admin" });
	await page.goto(`${console_}/registries`);
	await page.getByRole("button", { name: "Add a registry" }).first().click();
	await api("PUT", `/workspaces/${workspace}/members/${id}`, { role: "viewer" });
	const dialog = page.getByRole("dialog", { name: "Add a registry" });
	for (const [label, text] of [["Name", "x"], ["Server", "example.com"], ["User name", "u"], ["Password or token", "p"]]) await dialog.getByLabel(label, { exact: true }).fill(text);
	await dialog.getByRole("button", { name: "Add", exact: true }).click();
	await dialog.getByRole("alert").getByText("your role in this workspace is viewer").waitFor();
	await shown(page, "refused");
	clean(page);
});

test("a page whose list cannot be read says so, and tries again", async () => {
	const page = await visit();
	await signInByToken(page);
	await page.route("**/v1/images?*", (route) => route.abort());
	await page.getByRole("link", { name: "Images" }).click();
	await page.getByRole("alert").getByText("The server does not answer").waitFor();
	await shown(page, "images-unreachable");
	await page.unroute("**/v1/images?*");
	await page.getByRole("button", { name: "Try again" }).click();
	await page.getByRole("list", { name: "Images" }).getByText("modbox/code-exec:latest").waitFor();

	// An answer that the page does not understand leaves the console as it is.
	await page.route("**/v1/host", (route) => route.fulfill({ json: {} }));
	await page.getByRole("link", { name: "Host" }).click();
	await page.getByRole("alert").getByText("This page failed").waitFor();
	await shown(page, "failed");
	await page.unroute("**/v1/host");
	await page.getByRole("button", { name: "Show the page again" }).click();
	await page.getByRole("meter", { name: "Disk used" }).waitFor();
	clean(page);
});

test("a page that could not be loaded is loaded again on request", async () => {
	const page = await visit();
	await signInByToken(page);
	const file = /\/assets\/host-[^/]*\.js$/;
	await page.route(file, (route) => route.abort());
	await page.getByRole("link", { name: "Host" }).click();
	await page.getByRole("alert").getByText("This page failed").waitFor();
	await page.unroute(file);
	await page.getByRole("button", { name: "Show the page again" }).click();
	await page.getByRole("meter", { name: "Disk used" }).waitFor();
	clean(page);
});

test("a dialog whose call hangs is closed after ten seconds", async () => {
	const page = await visit();
	await page.clock.install();
	await signInByToken(page);
	await page.getByRole("link", { name: "Tokens" }).click();
	await page.route("**/v1/tokens", () => {}); // no answer
	await page.getByRole("button", { name: "Create a token" }).first().click();
	const dialog = page.getByRole("dialog", { name: "Create a token" });
	await dialog.getByRole("button", { name: "Create", exact: true }).click();
	await dialog.getByRole("status").getByText("stays open until the server has answered").waitFor();
	await dialog.getByRole("button", { name: "Close", disabled: true }).waitFor();
	await dialog.getByRole("button", { name: "Cancel", disabled: true }).waitFor();
	await page.keyboard.press("Escape");
	await shown(page, "dialog-busy");
	await api("POST", "/tokens", { description: `hung ${mark}` }); // as the call would
	assert.equal(await page.getByText(`hung ${mark}`).count(), 0);
	await page.clock.fastForward(11_000);
	const aborted = page.waitForEvent("requestfailed", (r) => r.url().endsWith("/v1/tokens"));
	await dialog.getByRole("button", { name: "Stop waiting", exact: true }).click();
	await aborted;
	await dialog.getByRole("alert").getByText("may have taken effect").waitFor();
	await shown(page, "dialog-stopped");
	await dialog.getByRole("button", { name: "Cancel" }).click();
	await dialog.waitFor({ state: "detached" });
	await page.getByText(`hung ${mark}`).waitFor(); // the list is the one from after the stop
	clean(page);
});
