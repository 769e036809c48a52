// Files: read, write, list, move, watch, signed URLs.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { create, later, lines } from "./setup.mjs";

for (const [line, { Sandbox, FileNotFoundError, NotFoundError }] of Object.entries(lines)) {
	const Missing = FileNotFoundError ?? NotFoundError;
	test(`${line}: files`, async (t) => {
		const sbx = await create(t, Sandbox, { timeoutMs: 300_000 });
		await t.test("write and read", async () => {
			const info = await sbx.files.write("dir/a file ü.txt", "text ü");
			assert.deepEqual([info.name, info.path, info.type], ["a file ü.txt", "/home/user/dir/a file ü.txt", "file"]);
			assert.equal(await sbx.files.read("dir/a file ü.txt"), "text ü");
			assert.equal((await sbx.commands.run("stat -c '%U %a' dir 'dir/a file ü.txt'")).stdout, "user 755\nuser 644\n");
			await sbx.files.write("empty", "");
			assert.equal(await sbx.files.read("empty"), "");
			const big = randomBytes(5 << 20);
			await sbx.files.write("/tmp/big", new Blob([big]));
			assert.deepEqual(Buffer.from(await sbx.files.read("/tmp/big", { format: "bytes" })), big);
			const many = await sbx.files.write([{ path: "many/1", data: "one" }, { path: "many/2", data: new Blob(["two"]) }]);
			assert.deepEqual(many.map((f) => f.path), ["/home/user/many/1", "/home/user/many/2"]);
			await sbx.files.write("/root/secret", "r", { user: "root" });
			assert.equal((await sbx.commands.run("stat -c %U /root/secret", { user: "root" })).stdout, "root\n");
			await assert.rejects(sbx.files.read("missing"), Missing);
			await assert.rejects(sbx.files.read("/tmp"));
			await assert.rejects(sbx.files.write("/tmp", "x"));
		});
		await t.test("formats, compression, streams, aborts, 20 at once", async () => {
			const data = randomBytes(1 << 20);
			for (const [name, opts] of Object.entries({ form: {}, raw: { useOctetStream: true }, packed: { gzip: true } })) {
				const [written] = await sbx.files.writeFiles([{ path: `up/${name}`, data: new Blob([data]) }], opts);
				assert.equal(written.path, `/home/user/up/${name}`);
				for (const gzip of [false, true]) assert.deepEqual(Buffer.from(await sbx.files.read(`up/${name}`, { format: "bytes", gzip })), data, `${name} ${gzip}`);
			}
			const text = "a line of text\n".repeat(100_000);
			await sbx.files.write("/home/user/up/text", new Blob([text]).stream(), { user: "root" });
			assert.equal((await sbx.commands.run("stat -c '%U %s' up/text")).stdout, "root 1500000\n");
			assert.equal(await sbx.files.read("up/text", { gzip: true }), text);
			assert.equal(await (await sbx.files.read("up/text", { format: "blob" })).text(), text);
			assert.equal(await new Response(await sbx.files.read("up/text", { format: "stream", gzip: true })).text(), text);
			for (const format of ["text", "bytes", "blob"]) {
				await sbx.files.write("up/empty", "");
				const empty = await sbx.files.read("up/empty", { format, gzip: true });
				assert.equal(empty.size ?? empty.length, 0);
			}
			await assert.rejects(sbx.files.read("up/text", { signal: AbortSignal.abort() }));
			await assert.rejects(sbx.files.write("up/never", "x", { signal: AbortSignal.abort() }));
			await assert.rejects(sbx.files.list("/", { signal: AbortSignal.abort() }));
			// A reader that goes away in the middle, and an upload that breaks off in the middle.
			await sbx.commands.run("truncate -s 4G up/long");
			const reader = (await sbx.files.read("up/long", { format: "stream" })).getReader();
			assert.ok((await reader.read()).value.length > 0);
			await reader.cancel();
			await sbx.files.write("up/half", "before");
			const gone = new AbortController();
			const endless = new ReadableStream({ pull: (c) => (c.enqueue(new Uint8Array(1 << 16)), new Promise((resolve) => setTimeout(resolve, 20))) });
			const broken = assert.rejects(sbx.files.write("up/half", endless, { useOctetStream: true, signal: gone.signal }));
			setTimeout(() => gone.abort(), 300);
			await broken;
			// Node's HTTP/2 ends the body of a request that is aborted, before it resets the stream: the upload was whole to the server.
			if (!process.env.E2B_DOMAIN) assert.equal(await sbx.files.read("up/half"), "before");
			await assert.rejects(sbx.files.read("up/text", { user: "nobody-here" }), /invalid username/);
			await assert.rejects(sbx.files.list("/", { user: "nobody-here" }), /invalid username/);
			assert.equal(await sbx.files.exists("up/never"), false);
			const many = Array.from({ length: 20 }, (_, i) => i);
			await Promise.all(many.map((i) => sbx.files.write(`up/many/${i}`, `file ${i}`)));
			assert.deepEqual(await Promise.all(many.map((i) => sbx.files.read(`up/many/${i}`))), many.map((i) => `file ${i}`));
		});
		await t.test("describe, list, make, move, remove", async () => {
			assert.equal(await sbx.files.makeDir("tree/sub"), true);
			assert.equal(await sbx.files.makeDir("tree/sub"), false);
			await sbx.files.write("tree/sub/f", "1234");
			await sbx.commands.run("ln -s sub/f tree/link");
			const info = await sbx.files.getInfo("tree/sub/f");
			assert.deepEqual([info.size, info.mode, info.permissions, info.owner, info.group], [4, 0o644, "-rw-r--r--", "user", "user"]);
			assert.ok(Math.abs(info.modifiedTime - Date.now()) < 600_000);
			const link = await sbx.files.getInfo("tree/link");
			assert.equal(link.symlinkTarget, "/home/user/tree/sub/f");
			assert.deepEqual((await sbx.files.list("tree")).map((e) => [e.name, e.type]), [["link", "file"], ["sub", "dir"]]);
			assert.deepEqual((await sbx.files.list("tree", { depth: 2 })).map((e) => e.path), ["link", "sub", "sub/f"].map((p) => `/home/user/tree/${p}`));
			await assert.rejects(sbx.files.list("tree/sub/f"));
			await assert.rejects(sbx.files.list("none"), Missing);
			const moved = await sbx.files.rename("tree/sub/f", "tree/new/g");
			assert.equal(moved.path, "/home/user/tree/new/g");
			await assert.rejects(sbx.files.rename("tree/sub/f", "tree/h"), Missing);
			assert.equal(await sbx.files.exists("tree/sub/f"), false);
			assert.equal(await sbx.files.exists("tree/new/g"), true);
			await sbx.files.remove("tree");
			await sbx.files.remove("tree");
			assert.equal(await sbx.files.exists("tree"), false);
		});
		await t.test("watch", async () => {
			await sbx.files.makeDir("watched/sub");
			const deep = later();
			const seen = [];
			const watch = await sbx.files.watchDir("watched", (e) => {
				seen.push(e);
				if (e.name === "sub/f" && e.type === "remove") deep.resolve();
			}, { recursive: true, timeoutMs: 0 });
			await sbx.files.write("watched/sub/f", "1");
			await sbx.files.remove("watched/sub/f");
			await deep.promise;
			assert.ok(seen.some((e) => e.name === "sub/f" && e.type === "create") || seen.some((e) => e.type === "write" || e.type === "rename"), JSON.stringify(seen));
			await watch.stop();
			await assert.rejects(sbx.files.watchDir("nowhere", () => {}), Missing);
		});
		await t.test("metadata, and what files are in events", async () => {
			await sbx.files.makeDir("described");
			const written = later(), entries = [];
			const watch = await sbx.files.watchDir("described", (e) => {
				entries.push(e);
				if (e.name === "f" && e.entry?.metadata) written.resolve(e.entry);
			}, { includeEntry: true, allowNetworkMounts: true, timeoutMs: 0 });
			const info = await sbx.files.write("described/f", "1234", { metadata: { Author: "an agent", "x.y~z": "a=b; c" } });
			const metadata = { author: "an agent", "x.y~z": "a=b; c" };
			assert.deepEqual(info.metadata, metadata);
			const entry = await written.promise;
			assert.deepEqual([entry.path, entry.type, entry.size, entry.metadata], ["/home/user/described/f", "file", 4, metadata], JSON.stringify(entries));
			await watch.stop();
			assert.deepEqual((await sbx.files.getInfo("described/f")).metadata, metadata);
			await sbx.commands.run("ln -s f described/link; cp -a described/f described/copy");
			assert.deepEqual((await sbx.files.getInfo("described/link")).metadata, metadata);
			assert.deepEqual((await sbx.files.list("described")).map((e) => e.metadata), [metadata, metadata, metadata]);
			assert.equal((await sbx.commands.run(`python3 -c 'import os; print(os.getxattr("described/f", "user.e2b.author").decode())'`)).stdout, "an agent\n");
			await sbx.commands.run(`python3 -c 'import os; os.setxattr("described", "user.e2b.made", b"inside"); os.setxattr("described", "user.other", b"x")'`);
			assert.deepEqual((await sbx.files.getInfo("described")).metadata, { made: "inside" });
			for (const opts of [{ useOctetStream: true }, { gzip: true }, {}]) {
				const many = await sbx.files.writeFiles([{ path: "described/1", data: "one" }, { path: "described/2", data: "two" }], { metadata: { a: "1" }, ...opts });
				assert.deepEqual(many.map((f) => f.metadata), [{ a: "1" }, { a: "1" }]);
			}
			assert.deepEqual((await sbx.files.rename("described/1", "/tmp/described")).metadata, { a: "1" });
			assert.equal((await sbx.files.write("described/2", "again")).metadata, undefined);
			assert.equal((await sbx.files.getInfo("described/2")).metadata, undefined);
			await assert.rejects(sbx.files.write("described/3", "x", { metadata: { a: "v".repeat(4100) } }), /400|X-Metadata|bytes/);
			await assert.rejects(sbx.files.write("described/3", "x", { metadata: { ["k".repeat(247)]: "" } }), /246/);
			assert.equal(await sbx.files.exists("described/3"), false);
		});
		await t.test("signed URLs", async () => {
			await sbx.files.write("signed.txt", "signed");
			const get = await fetch(await sbx.downloadUrl("signed.txt", { user: "user" }));
			assert.deepEqual([get.status, await get.text()], [200, "signed"]);
			const form = new FormData();
			form.append("file", new Blob(["uploaded"]), "up.txt");
			const put = await fetch(await sbx.uploadUrl("up.txt", { user: "user", useSignatureExpiration: 100 }), { method: "POST", body: form });
			assert.equal(put.status, 200, await put.text());
			assert.equal(await sbx.files.read("up.txt"), "uploaded");
			const expired = await fetch(await sbx.downloadUrl("signed.txt", { user: "user", useSignatureExpiration: -120 }));
			assert.equal(expired.status, 401);
			assert.deepEqual(await expired.json(), { code: 401, message: "signature is already expired" });
			const url = new URL(await sbx.downloadUrl("signed.txt", { user: "user" }));
			url.searchParams.set("path", "other.txt");
			assert.equal((await fetch(url)).status, 401);
		});
	});
}
