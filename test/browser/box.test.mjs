// The pages of one sandbox in the web console: files, ports, checkpoints. Real sandboxes; they share one.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, begin, clean, confirmed, console_, patience, sandbox, server, shown, signInByToken, token, visit } from "./kit.mjs";

begin();

/** shared is the sandbox of the tests here, made once. */
let made;
const shared = () => (made ??= sandbox("box", { network: { enabled: false } }));

/** open shows a tab of a sandbox to the owner of the token. */
async function open(sb, tab, options) {
	const page = await visit(options);
	await signInByToken(page);
	await page.goto(`${console_}/sandboxes/${sb.id}/${tab}`);
	return page;
}

const file = (sb, path, init) => fetch(`${server}/v1/sandboxes/${sb.id}/files?path=${encodeURIComponent(path)}`, { ...init, headers: { Authorization: `Bearer ${token}` }, signal: AbortSignal.timeout(patience) });
const read = async (sb, path) => (await file(sb, path)).text();

test("files are edited, uploaded by a drop, downloaded and removed", async () => {
	const sb = await shared();
	await api("POST", `/sandboxes/${sb.id}/files/mkdir`, { path: "/project/src", parents: true });
	await file(sb, "/project/src/main.py", { method: "PUT", body: "def greet(name):\n    return f'hello {name}'\n" });
	await file(sb, "/project/blob", { method: "PUT", body: new Uint8Array([0, 255, 1, 254]) });
	const page = await open(sb, "files");
	await page.getByRole("button", { name: "/", exact: true }).click();
	await page.getByRole("treeitem", { name: "project", exact: true }).click();
	await page.getByRole("treeitem", { name: /^src/ }).click();
	await page.getByRole("treeitem", { name: /^main\.py/ }).click();
	const editor = page.getByRole("textbox", { name: "Content of main.py" });
	await editor.getByText("greet", { exact: true }).waitFor(); // a word alone: it is highlighted
	await shown(page, "files");

	await editor.click();
	await page.keyboard.press("Control+End");
	await page.keyboard.type("print(greet('console'))");
	await page.getByText("Not saved").waitFor();
	await page.keyboard.press("Control+s");
	await page.getByText("Saved", { exact: true }).waitFor();
	assert.equal(await read(sb, "/project/src/main.py"), "def greet(name):\n    return f'hello {name}'\nprint(greet('console'))");

	// A change in the sandbox is not replaced without a question.
	await file(sb, "/project/src/main.py", { method: "PUT", body: "# someone else\n" });
	await editor.click();
	await page.keyboard.type("# mine\n");
	await page.keyboard.press("Control+s");
	await confirmed(page, "Cancel");
	assert.equal(await read(sb, "/project/src/main.py"), "# someone else\n");
	await page.getByRole("treeitem", { name: /^blob/ }).click();
	await confirmed(page, "Leave");
	await page.getByText("blob is not text").waitFor();
	const [taken] = await Promise.all([page.waitForEvent("download"), page.getByRole("region", { name: "File" }).getByRole("button", { name: "Download" }).click()]);
	assert.equal(taken.suggestedFilename(), "blob");

	const dropped = await page.evaluateHandle(() => {
		const data = new DataTransfer();
		data.items.add(new File(["dropped\n"], "dropped.txt"));
		return data;
	});
	await page.getByRole("treeitem", { name: /^src/ }).dispatchEvent("drop", { dataTransfer: dropped });
	await page.getByRole("treeitem", { name: /^dropped\.txt/ }).click();
	await page.getByRole("textbox", { name: "Content of dropped.txt" }).getByText("dropped").waitFor();
	assert.equal(await read(sb, "/project/src/dropped.txt"), "dropped\n");
	await page.getByRole("button", { name: "Remove", exact: true }).click();
	await confirmed(page, "Remove");
	await page.getByRole("treeitem", { name: /^dropped\.txt/ }).waitFor({ state: "detached" });
	assert.equal((await file(sb, "/project/src/dropped.txt")).status, 404);

	// By the keyboard alone: a directory is closed and opened, and a file is opened.
	await page.getByRole("treeitem", { name: /^src/ }).focus();
	await page.keyboard.press("ArrowLeft");
	await page.getByRole("treeitem", { name: /^main\.py/ }).waitFor({ state: "detached" });
	await page.keyboard.press("ArrowRight");
	await page.getByRole("treeitem", { name: /^main\.py/ }).waitFor();
	await page.keyboard.press("ArrowDown");
	await page.keyboard.press("Enter");
	await editor.getByText("# someone else").waitFor();
	clean(page);
});

test("files that differ from the image are marked, and a changed text is shown with its lines", async () => {
	const sb = await shared();
	const was = await read(sb, "/etc/bash.bashrc");
	await file(sb, "/etc/bash.bashrc", { method: "PUT", body: was.replace("# ", "# changed: ") });
	await file(sb, "/srv/new.txt", { method: "PUT", body: "new\n" });
	await file(sb, "/etc/profile", { method: "DELETE" });
	const page = await open(sb, "files");
	await page.getByRole("button", { name: "Changes", exact: true }).click();
	const changes = page.getByRole("list", { name: "Changes", exact: true });
	await changes.getByRole("button", { name: "added /srv/new.txt" }).waitFor();
	await changes.getByRole("button", { name: "removed /etc/profile" }).click();
	const file_ = page.getByRole("region", { name: "File" });
	await file_.getByText("system-wide .profile file").first().waitFor(); // a line of the image
	await changes.getByRole("button", { name: "changed /etc/bash.bashrc" }).click();
	await file_.locator(".cm-changedLine").first().waitFor();
	await file_.locator(".cm-deletedChunk").first().waitFor();
	await shown(page, "files-changes");
	await file_.getByRole("button", { name: "Edit" }).click();
	const editor = page.getByRole("textbox", { name: "Content of bash.bashrc" });
	await editor.click();

	// An edited file is left after a question, and then the buttons are for it no more.
	await page.keyboard.type("# mine\n");
	await page.getByText("Not saved").waitFor();
	await changes.getByRole("button", { name: "added /srv/new.txt" }).click();
	await confirmed(page, "Leave");
	await file_.locator(".cm-changedLine").getByText("new", { exact: true }).waitFor();
	assert.equal(await page.getByRole("button", { name: "Remove", exact: true }).isDisabled(), true);
	await page.getByRole("button", { name: "Read again" }).click();
	await file_.getByText("No file is open").waitFor();

	await changes.getByRole("button", { name: "changed /etc/bash.bashrc" }).click();
	await file_.getByRole("button", { name: "Edit" }).click();
	await editor.waitFor();
	await page.getByRole("button", { name: "Remove", exact: true }).click();
	await page.getByRole("alertdialog", { name: "Remove /etc/bash.bashrc?" }).waitFor();
	await confirmed(page, "Cancel");
	await file_.getByRole("button", { name: "Compare" }).click();
	await file_.locator(".cm-changedLine").first().waitFor();
	await page.getByRole("button", { name: "All files" }).click();
	await page.getByRole("button", { name: "/", exact: true }).click();
	await page.getByRole("treeitem", { name: /^srv has changes/ }).click();
	await page.getByRole("treeitem", { name: /^new\.txt added/ }).waitFor();
	clean(page);
});

test("a command runs on, its output comes as it is written, and it is ended", async () => {
	const sb = await shared();
	const page = await open(sb, "executions");
	await page.getByText("No commands yet").waitFor();
	await page.getByLabel("Command", { exact: true }).fill("echo begun; until [ -e /tmp/go ]; do sleep 0.1; done; echo gone; exit 3");
	await page.getByRole("button", { name: "Run", exact: true }).click();
	const output = page.getByLabel("Output of the command");
	await output.getByText("begun").waitFor(); // while it runs
	const region = page.getByRole("region", { name: "Output" });
	await region.locator(".state", { hasText: "running" }).waitFor();
	await shown(page, "commands");
	await file(sb, "/tmp/go", { method: "PUT", body: "" });
	await output.getByText("gone").waitFor();
	await region.locator(".state", { hasText: "failed · 3" }).waitFor();
	await page.getByLabel("Command", { exact: true }).fill("sleep 600");
	await page.getByRole("button", { name: "Run", exact: true }).click();
	await region.getByRole("button", { name: "End" }).click();
	await region.locator(".state", { hasText: "cancelled" }).waitFor();
	assert.deepEqual((await api("GET", `/sandboxes/${sb.id}/executions`)).items.map((e) => e.state), ["cancelled", "failed"]);
	clean(page);
});

test("ports are published, shared by a link, and closed; the internet is switched", async () => {
	const sb = await shared();
	const page = await open(sb, "ports", { permissions: ["local-network-access"] });
	await page.getByText("No port is published").waitFor();
	await page.getByLabel("Port", { exact: true }).fill("70000");
	await page.getByRole("button", { name: "Publish", exact: true }).click();
	await page.getByText("A port is a number from 1 to 65535.").waitFor();
	await page.getByLabel("Port", { exact: true }).fill("3000");
	await page.getByLabel("Visitors").selectOption("private");
	await page.getByRole("button", { name: "Publish", exact: true }).click();
	await page.getByRole("button", { name: "Make public" }).waitFor();
	await shown(page, "ports");
	await page.getByRole("button", { name: "Share…" }).click();
	await page.getByRole("button", { name: "Make a link" }).click();
	const link = await page.getByLabel("Link", { exact: true }).inputValue();
	const [port] = (await api("GET", `/sandboxes/${sb.id}/ports`)).items;
	assert.ok(link.startsWith(port.url) && port.access === "private", `${link} of ${port.url}`);
	await shown(page, "ports-share");
	await page.keyboard.press("Escape");

	// A public port has a preview, which cannot lead the console away.
	const preview = page.getByRole("button", { name: "Preview of port 3000" });
	assert.equal(await preview.count(), 0, "the preview of a private port");
	await page.getByRole("button", { name: "Make public" }).click();
	await api("POST", `/sandboxes/${sb.id}/exec`, { shell: "mkdir /tmp/page && echo '<h1>From the sandbox</h1><a href=/ target=_blank>window</a> <a href=/ target=_top>top</a>' >/tmp/page/index.html" });
	await api("POST", `/sandboxes/${sb.id}/executions`, { kind: "job", command: ["python3", "-m", "http.server", "3000", "--directory", "/tmp/page"] });
	await preview.click();
	const heading = page.frameLocator("iframe[title='Page of port 3000']").getByRole("heading", { name: "From the sandbox" });
	// The server in the sandbox takes a moment to listen.
	for (const end = Date.now() + patience; !(await heading.waitFor({ timeout: 2000 }).then(() => true, () => false)); ) {
		assert.ok(Date.now() < end, "the page of the port");
		await page.getByRole("button", { name: "Load again" }).click();
	}
	const frame = page.frames().find((f) => f !== page.mainFrame());
	assert.notEqual(new URL(frame.url()).origin, console_);
	assert.deepEqual(await frame.evaluate(async (at) => {
		const attempt = async (f) => { try { return String(await f()); } catch { return "refused"; } };
		return [
			await attempt(() => parent.document.title),
			await attempt(async () => (await fetch(`${at}/v1/whoami`, { credentials: "include" })).status),
			await attempt(() => { top.location.href = "about:blank"; return "gone"; }),
		];
	}, console_), ["refused", "refused", "refused"]);
	for (const link of ["window", "top"]) await frame.getByRole("link", { name: link }).click(); // by hand, which browsers permit more
	await frame.getByRole("heading").waitFor();
	assert.deepEqual([page.url(), page.context().pages().length], [`${console_}/sandboxes/${sb.id}/ports`, 1]);
	await shown(page, "ports-preview");
	await preview.click();
	assert.equal(await page.locator("iframe").count(), 0);
	await page.getByRole("button", { name: "Unpublish port 3000" }).click();
	await confirmed(page, "Unpublish");
	await page.getByText("No port is published").waitFor();
	const internet = page.getByRole("switch", { name: "Access to the internet" });
	await internet.click();
	await page.getByText("Programs in the sandbox reach the internet.").waitFor();
	assert.equal((await api("GET", `/sandboxes/${sb.id}`)).network.enabled, true);

	// Destinations: a mistake is said at its field, and allowed ones alone deny all others.
	const save = page.getByRole("button", { name: "Save the destinations" });
	await page.getByLabel("Denied destinations").fill("example.com");
	await save.click();
	await page.waitForFunction(() => document.querySelectorAll("textarea[aria-invalid=true]").length === 1);
	assert.equal(await page.getByRole("alert").count(), 0, "the same mistake elsewhere");
	assert.equal(await page.getByLabel("Denied destinations").getAttribute("aria-invalid"), "true");
	await page.getByLabel("Denied destinations").fill("");
	await page.getByLabel("Allowed destinations").fill("198.51.100.0/24, *.pypi.org");
	await save.click();
	await page.getByText("Programs in the sandbox reach only the allowed destinations.").waitFor();
	await shown(page, "ports-destinations");
	const { allow_out, deny_out } = (await api("GET", `/sandboxes/${sb.id}`)).network;
	assert.deepEqual([allow_out, deny_out], [["198.51.100.0/24", "*.pypi.org"], ["0.0.0.0/0"]]);
	await page.getByLabel("Allowed destinations").fill("");
	await page.getByLabel("Denied destinations").fill("");
	await save.click();
	await page.getByText("Programs in the sandbox reach the internet.").waitFor();

	// How requests reach its servers.
	const host = page.getByLabel("Host that its servers see");
	await host.fill("a/b");
	await page.getByRole("button", { name: "Save", exact: true }).click();
	await page.locator("input[aria-invalid=true]:focus").waitFor();
	await shown(page, "ports-requests");
	await host.fill("localhost:${PORT}");
	await page.getByLabel("Ports whose servers speak HTTPS").fill("8443 9443");
	await page.getByRole("button", { name: "Save", exact: true }).click();
	await page.getByText("Requests reach its servers this way from now on").waitFor();
	const { request_host, https_ports } = (await api("GET", `/sandboxes/${sb.id}`)).network;
	assert.deepEqual([request_host, https_ports], ["localhost:${PORT}", [8443, 9443]]);
	clean(page);
});

test("a dialog whose call hangs leaves nothing behind when the user stops waiting", async () => {
	const sb = await shared();
	const page = await visit();
	await page.clock.install();
	await signInByToken(page);
	await page.goto(`${console_}/sandboxes/${sb.id}/checkpoints`);
	const stop = async (dialog, pattern) => {
		const aborted = page.waitForEvent("requestfailed", (r) => pattern.test(r.url()));
		await dialog.getByRole("status").getByText("stays open until the server has answered").waitFor();
		await page.clock.fastForward(11_000);
		await dialog.getByRole("button", { name: "Stop waiting", exact: true }).click();
		await aborted;
		await dialog.getByText("may have taken effect").waitFor();
		await dialog.getByRole("button", { name: "Cancel" }).click();
		await dialog.waitFor({ state: "detached" });
	};
	await page.route("**/checkpoints", (route) => (route.request().method() === "POST" ? undefined : route.continue()));
	await page.getByRole("button", { name: "Save a checkpoint" }).click();
	await page.getByLabel("Name").fill("hung");
	await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
	await stop(page.getByRole("dialog"), /\/checkpoints$/);
	await page.getByRole("button", { name: "Save a checkpoint" }).click();
	assert.equal(await page.getByLabel("Name").inputValue(), "");
	assert.equal(await page.getByText("may have taken effect").count(), 0);
	await page.keyboard.press("Escape");

	// So does a question.
	await page.route(`**/sandboxes/${sb.id}`, (route) => (route.request().method() === "DELETE" ? undefined : route.continue()));
	await page.getByRole("button", { name: "Destroy" }).click();
	await page.getByRole("alertdialog").getByRole("button", { name: "Destroy" }).click();
	await stop(page.getByRole("alertdialog"), new RegExp(`/sandboxes/${sb.id}$`));
	await page.getByRole("button", { name: "Destroy" }).click();
	assert.equal(await page.getByText("may have taken effect").count(), 0);
	assert.equal(await page.getByText(`${sb.name} is destroyed`).count(), 0);
	await page.getByRole("alertdialog").getByRole("button", { name: "Cancel" }).click();
	assert.deepEqual((await api("GET", `/sandboxes/${sb.id}/checkpoints`)).items, []);
	assert.equal((await api("GET", `/sandboxes/${sb.id}`)).state, "running");
	clean(page);
});

test("a checkpoint is saved, gone back to, and forked from", async () => {
	const sb = await shared();
	await file(sb, "/project/state", { method: "PUT", body: "before" });
	const page = await open(sb, "checkpoints");
	await page.getByRole("button", { name: "Save a checkpoint" }).click();
	await page.getByLabel("Name").fill("good");
	await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
	await page.getByRole("button", { name: "Go back to good" }).waitFor();
	await file(sb, "/project/state", { method: "PUT", body: "after" });
	await page.getByRole("button", { name: "Fork", exact: true }).click();
	await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
	const fork = page.getByRole("list", { name: "Checkpoints and forks" }).getByRole("link");
	await fork.waitFor();
	await shown(page, "checkpoints");
	const [child] = (await api("GET", "/sandboxes")).items.filter((s) => s.parent_id === sb.id);
	assert.equal(await read(child, "/project/state"), "after");
	await page.getByRole("button", { name: "Go back to good" }).click();
	await confirmed(page, "Go back");
	await page.getByText(`${sb.name} is as it was at good`).waitFor();
	assert.equal(await read(sb, "/project/state"), "before");
	await api("DELETE", `/sandboxes/${child.id}`);
	await fork.waitFor({ state: "detached" });
	await page.getByRole("button", { name: "Remove checkpoint good" }).click();
	await confirmed(page, "Remove");
	await page.getByText("No checkpoints yet").waitFor();
	clean(page);
});
