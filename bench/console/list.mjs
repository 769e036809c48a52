// Measures the console's list with many sandboxes: the first rows, updates, scrolling. list_test.go starts it.
// PROFILE=FILE keeps a CPU profile of the page while the list is scrolled and changes, for Chromium's DevTools.
import { writeFileSync } from "node:fs";
import { launch } from "../../test/browser/machine.mjs";

const { MODBOX_URL: server, MODBOX_API_TOKEN: token, CONSOLE_URL: console_, SANDBOXES: sandboxes, PROFILE: profile } = process.env;
const loads = 7;
const updates = 40;
const rate = 50; // updates a second
const seconds = 15;

const sorted = (list) => [...list].sort((a, b) => a - b);
const share = (list, q) => sorted(list)[Math.min(list.length - 1, Math.floor(q * list.length))];
const line = (what, list) => console.log(`${what.padEnd(46)} median ${share(list, 0.5).toFixed(1).padStart(7)} ms   p95 ${share(list, 0.95).toFixed(1).padStart(7)} ms   most ${Math.max(...list).toFixed(1).padStart(7)} ms   (${list.length})`);

async function api(method, path, body) {
	const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
	const res = await fetch(`${server}/v1${path}`, { method, headers, body: body && JSON.stringify(body) });
	if (!res.ok) throw new Error(`${method} ${path}: ${res.status} ${await res.text()}`);
	return res.json();
}

const browser = await launch();
try {
	const page = await browser.newPage({ viewport: { width: 1360, height: 840 } });
	// The times at which the first row and the whole list were painted, since the navigation.
	await page.addInitScript((whole) => {
		window.marks = {};
		const mark = (name) => {
			if (name in window.marks) return;
			window.marks[name] = 0;
			requestAnimationFrame(() => setTimeout(() => { window.marks[name] = performance.now(); }));
		};
		const look = () => {
			if (document.querySelector(".table-body .row")) mark("first");
			if (document.querySelector(".segments small")?.textContent === whole) mark("whole");
		};
		new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true });
		window.long = [];
		new PerformanceObserver((list) => window.long.push(...list.getEntries().map((e) => e.duration))).observe({ entryTypes: ["longtask"] });
	}, sandboxes);
	await page.goto(`${console_}/`);
	await page.getByRole("button", { name: "Use an API token" }).click();
	await page.getByLabel("API token").fill(token);
	await page.getByRole("button", { name: "Sign in", exact: true }).click();
	await page.waitForFunction(() => window.marks.whole > 0);

	const first = [], whole = [];
	for (let i = 0; i < loads; i++) {
		await page.reload();
		await page.waitForFunction(() => window.marks.whole > 0);
		const marks = await page.evaluate(() => window.marks);
		first.push(marks.first);
		whole.push(marks.whole);
	}
	line("navigation to the first row", first);
	line(`navigation to all ${sandboxes} in the list`, whole);

	// An update: from the answer of the API until the row shows it. The store gathers events for 200 ms of it.
	await page.getByText("Live", { exact: true }).waitFor();
	const rows = await page.evaluate(() => [...document.querySelectorAll(".table-body .row .name a")].slice(0, 8).map((a) => a.textContent));
	const seen = [];
	for (let i = 0; i < updates; i++) {
		const name = rows[i % rows.length];
		const pause = Math.floor(i / rows.length) % 2 === 0;
		const shown = page.evaluate(({ name, state }) => new Promise((done) => {
			const row = [...document.querySelectorAll(".table-body .row")].find((r) => r.querySelector(".name a").textContent === name);
			const look = () => row.querySelector(".state").textContent === state && (observer.disconnect(), requestAnimationFrame(() => setTimeout(() => done(Date.now()))));
			const observer = new MutationObserver(look);
			observer.observe(row, { childList: true, subtree: true, characterData: true });
			look();
		}), { name, state: pause ? "paused" : "running" });
		await api("POST", `/sandboxes/${name}/${pause ? "pause" : "resume"}`);
		const answered = Date.now();
		seen.push(Math.max(0, (await shown) - answered));
	}
	line("an update until it is painted", seen);

	// The list is scrolled without and with updates: no frame may wait for the list.
	const scroll = () => page.evaluate((ms) => new Promise((done) => {
		const body = document.querySelector(".table-body");
		body.scrollTop = 0;
		window.long = [];
		const times = [];
		const began = performance.now();
		let last = began, most = 0;
		const step = (now) => {
			times.push(now - last);
			last = now;
			most = Math.max(most, document.querySelectorAll(".table-body .row").length);
			body.scrollTop += 60;
			if (now - began < ms) requestAnimationFrame(step);
			else done({ times: times.slice(1), most, long: window.long });
		};
		requestAnimationFrame(step);
	}), seconds * 1000);
	const told = (what, { times, most, long }) => {
		line(what, times);
		console.log(`${"".padEnd(46)} ${long.length} tasks of more than 50 ms, ${long.reduce((a, b) => a + b, 0).toFixed(0)} ms in all${long.length ? `, the longest ${Math.max(...long).toFixed(0)} ms` : ""}; at most ${most} rows in the page`);
	};
	told("a frame while the list is scrolled", await scroll());

	const { items } = await api("GET", `/sandboxes?limit=1000&state=running`);
	const began = Date.now();
	let sent = 0, going = true;
	const changing = Promise.all(Array.from({ length: 8 }, async () => {
		for (let n = sent++; going; n = sent++) {
			await new Promise((r) => setTimeout(r, began + (n * 1000) / rate - Date.now()));
			await api("PATCH", `/sandboxes/${items[n % items.length].id}`, { ttl_seconds: 3600 + n });
		}
	}));
	const cdp = profile && (await page.context().newCDPSession(page));
	if (cdp) await cdp.send("Profiler.enable").then(() => cdp.send("Profiler.start"));
	const busy = await scroll();
	if (cdp) writeFileSync(profile, JSON.stringify((await cdp.send("Profiler.stop")).profile));
	going = false;
	await changing;
	told(`a frame while ${(sent / ((Date.now() - began) / 1000)).toFixed(0)} change in a second`, busy);
} finally {
	await browser.close();
}
