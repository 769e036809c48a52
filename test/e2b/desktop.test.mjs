// The published client of desktops: it starts the screen, the session and the VNC server in the sandbox by commands.
import assert from "node:assert/strict";
import { request } from "node:http";
import { test } from "node:test";
import { call, create, url } from "./setup.mjs";

const { Sandbox } = await import("@e2b/desktop");

/** until polls another process. */
async function until(what, done) {
	for (const end = Date.now() + 180_000; ; await new Promise((resolve) => setTimeout(resolve, 100))) {
		const got = await done().catch(() => undefined); // a command that finds nothing fails
		if (got) return got;
		if (Date.now() > end) throw new Error(`waited three minutes for ${what}`);
	}
}

/** firstBytes opens a WebSocket to a port of the sandbox, and returns the first frame that comes. */
function firstBytes(path, headers) {
	return new Promise((resolve, reject) => {
		const req = request(url + path, {
			headers: { ...headers, Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": "binary" },
		});
		req.on("upgrade", (res, socket, head) => {
			let got = head;
			const look = () => {
				if (got.length < 2 || got.length < 2 + got[1]) return;
				socket.destroy();
				resolve(got.subarray(2, 2 + got[1]).toString());
			};
			socket.on("data", (data) => {
				got = Buffer.concat([got, data]);
				look();
			});
			look();
		});
		req.on("response", (res) => reject(new Error(`status ${res.statusCode}`)));
		req.on("error", reject);
		req.end();
	});
}

test("a desktop: screen, mouse, keyboard, windows, programs", async (t) => {
	const desktop = await create(t, Sandbox, { resolution: [1024, 768], timeoutMs: 900_000 });
	const { commands, files } = desktop;
	assert.deepEqual(await desktop.getScreenSize(), { width: 1024, height: 768 });
	const picture = Buffer.from(await desktop.screenshot());
	assert.equal(picture.subarray(1, 4).toString(), "PNG");
	assert.deepEqual([picture.readUInt32BE(16), picture.readUInt32BE(20)], [1024, 768]);

	await desktop.moveMouse(100, 200);
	assert.deepEqual(await desktop.getCursorPosition(), { x: 100, y: 200 });
	await desktop.drag([100, 200], [300, 250]);
	assert.deepEqual(await desktop.getCursorPosition(), { x: 300, y: 250 });

	await desktop.launch("xfce4-terminal");
	const [terminal] = await until("the terminal", () => desktop.getApplicationWindows("xfce4-terminal"));
	await commands.run(`xdotool windowactivate --sync ${terminal}`);
	await until("the focus", async () => (await desktop.getCurrentWindowId()) === terminal);
	await until("the prompt", async () => (await desktop.getWindowTitle(terminal)).includes("user@"));
	await until("what is typed", async () => {
		await desktop.write("echo 'it is $HOME' >typed", { chunkSize: 50, delayInMs: 10 });
		await desktop.press("enter");
		return (await files.read("typed")) === "it is $HOME\n";
	});
	await desktop.write("sleep 1000", { chunkSize: 50, delayInMs: 10 });
	await desktop.press("enter");
	await until("the command", () => commands.run("pgrep -x sleep"));
	await desktop.press(["ctrl", "c"]);
	await until("the end of the command", () => commands.run("! pgrep -x sleep"));

	// A program that says which buttons are pressed.
	await commands.run("xev -geometry 300x300+0+0 -event button >buttons", { background: true, timeoutMs: 0 });
	const pressed = async () => [...(await files.read("buttons")).matchAll(/ButtonPress[^]*?button (\d)/g)].map((m) => m[1]).join("");
	await until("the clicks", async () => {
		await commands.run("xdotool search --onlyvisible --name 'Event Tester' windowactivate");
		await desktop.leftClick(150, 150);
		return (await pressed()).endsWith("1");
	});
	await desktop.rightClick();
	await desktop.middleClick();
	await desktop.scroll("up", 2);
	await desktop.doubleClick();
	await until("all buttons", async () => /324411$/.test(await pressed()));

	// The browser shows a page.
	await files.write("page.html", "<title>A page of ours</title>hello");
	await desktop.open("/home/user/page.html");
	const title = await until("the page", async () => (await commands.run("xdotool search --onlyvisible --name 'A page of ours' getwindowname")).stdout);
	assert.match(title, /A page of ours/);
});

test("a desktop: the stream, with and without a password", async (t) => {
	const desktop = await create(t, Sandbox, { resolution: [800, 600], timeoutMs: 900_000 });
	const port = { "E2b-Sandbox-Id": desktop.sandboxId, "E2b-Sandbox-Port": "6080" };
	for (const requireAuth of [false, true]) {
		await desktop.stream.start({ requireAuth });
		const page = new URL(desktop.stream.getUrl(requireAuth ? { authKey: desktop.stream.getAuthKey(), viewOnly: true } : {}));
		assert.match(page.host, new RegExp(`^6080-${desktop.sandboxId}\\.`));
		for (const path of [page.pathname, "/core/rfb.js"]) assert.equal((await call("GET", path, { headers: port })).status, 200, path);
		assert.match(await firstBytes("/websockify", port), /^RFB 003\.00\d\n$/);
		await desktop.stream.stop();
		await until("the end of the VNC server", async () => !(await desktop.stream.checkVNCRunning()));
	}
});
