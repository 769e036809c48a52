// Templates: builds with steps, files and commands, logs, tags, errors, sandboxes of them, deletion.
import assert from "node:assert/strict";
import { mkdtemp, mkdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { call, create, lines, moment, token } from "./setup.mjs";

const key = { "X-API-Key": token };

/** files returns a directory with files for COPY steps. */
async function files(t) {
	const dir = await mkdtemp(join(tmpdir(), "e2b-"));
	t.after(() => rm(dir, { recursive: true }));
	await mkdir(join(dir, "app/lib"), { recursive: true });
	await writeFile(join(dir, "app/main.sh"), "#!/bin/sh\necho main $1\n", { mode: 0o644 });
	await writeFile(join(dir, "app/lib/data.txt"), "data");
	await writeFile(join(dir, "one.txt"), "one");
	await writeFile(join(dir, "two.txt"), "two");
	return dir;
}

/** remove deletes a template after the test. */
function remove(t, name) {
	t.after(() => call("DELETE", `/templates/${name}`, { headers: key }));
}

for (const [line, { BuildError, Sandbox, Template, waitForFile, waitForPort, waitForProcess, waitForTimeout, waitForURL }] of Object.entries(lines)) {
	const name = `built-${line.replace(".", "-")}`;

	test(`${line}: a template from steps, and sandboxes of it`, async (t) => {
		remove(t, name);
		const template = Template({ fileContextPath: await files(t) })
			.fromImage("modbox/base")
			.setEnvs({ GREETING: 'say "hi" $$5', WHERE: "/opt" })
			.runCmd("id -un >/tmp/who; mkdir -p $HOME/made && whoami >$HOME/made/who")
			.runCmd(["true", "touch /etc/by-root"], { user: "root" })
			.copy("app", "/opt/app", { user: "root", mode: 0o755 })
			.copy("*.txt", "notes")
			.copy("one.txt", "renamed.txt")
			.setWorkdir("/srv/work")
			.runCmd("pwd >where && cat /opt/app/lib/data.txt")
			.setStartCmd("echo started >/tmp/started; exec sleep 1000", waitForFile("/tmp/started"));
		const log = [];
		const built = await Template.build(template, name, { cpuCount: 1, memoryMB: 512, onBuildLogs: (entry) => log.push(entry.message) });
		assert.equal(built.templateId, name);
		assert.ok(log.some((m) => m.includes("data")), log.join("\n"));
		assert.equal(await Template.exists(name), true);

		const sbx = await create(t, Sandbox, name);
		const run = async (command) => (await sbx.commands.run(command)).stdout.trim();
		assert.equal(await run("cat /home/user/made/who"), "user");
		assert.equal(await run("stat -c %U /etc/by-root /home/user/notes/one.txt | paste -sd ' '"), "root user");
		assert.equal(await run("/opt/app/main.sh x; stat -c '%U %a' /opt/app/main.sh"), "main x\nroot 755");
		assert.equal(await run("cat /home/user/notes/two.txt /home/user/renamed.txt"), "twoone");
		assert.equal(await run("cat /srv/work/where; stat -c %U /srv/work"), "/srv/work\nuser");
		assert.equal(await run("echo $WHERE"), "/opt");
		assert.equal(await run("cat /tmp/started"), "started");
		assert.ok((await run("ps -e -o args")).includes("sleep 1000"));
		const info = await sbx.getInfo();
		assert.deepEqual([info.cpuCount, info.memoryMB], [1, 512]);
	});

	test(`${line}: the other methods of a template, built in the background`, async (t) => {
		const second = `${name}-background`;
		remove(t, second);
		const template = Template({ fileContextPath: await files(t) })
			.fromImage("modbox/base")
			.copyItems([{ src: "one.txt", dest: "/home/user/items/one.txt" }, { src: "two.txt", dest: "/home/user/items/two.txt" }])
			.rename("/home/user/items/one.txt", "/home/user/items/renamed.txt")
			.makeDir(["/home/user/made", "/home/user/made/twice"], { mode: 0o700 })
			.makeSymlink("/home/user/items/two.txt", "/home/user/link")
			.remove(["/home/user/made/twice", "/home/user/nothing"], { recursive: true, force: true })
			.setUser("root")
			.runCmd("id -un >/who")
			.setUser("user")
			.setEnvs({ KIND: "background" })
			.setReadyCmd(waitForFile("/who"));
		assert.equal(JSON.parse(await Template.toJSON(template)).readyCmd, waitForFile("/who").getCmd());
		const begun = await Template.buildInBackground(template, second);
		let status;
		const log = [];
		for (;;) {
			status = await Template.getBuildStatus(begun, { logsOffset: log.length });
			log.push(...status.logEntries);
			if (status.status !== "building" && status.status !== "waiting") break;
			await moment();
		}
		assert.equal(status.status, "ready", log.map((entry) => entry.message).join("\n"));
		assert.ok(log.length > 0);
		assert.equal(await Template.aliasExists(second), true);
		const sbx = await create(t, Sandbox, second);
		const run = async (command) => (await sbx.commands.run(command)).stdout.trim();
		assert.equal(await run("cat /who; cat items/renamed.txt link; echo; stat -c %a made; echo $KIND"), "root\nonetwo\n700\nbackground");
	});

	test(`${line}: a create that its client gives up leaves no sandbox`, async (t) => {
		const key = `given-up-${line}`;
		await assert.rejects(Sandbox.create({ metadata: { key }, signal: AbortSignal.abort() }));
		// A create of this template does not end by itself: its sandboxes are never ready.
		const never = `${name}-never-ready`;
		remove(t, never);
		await Template.build(Template().fromImage("modbox/base").setReadyCmd("test -e /none"), never);
		const gone = new AbortController();
		const creating = assert.rejects(Sandbox.create(never, { metadata: { key }, signal: gone.signal }), /abort/i);
		const list = () => Sandbox.list({ query: { metadata: { key } } }).nextItems();
		while ((await list()).length === 0) await moment();
		gone.abort();
		await creating;
		while ((await list()).length > 0) await moment(); // the server ends it after the connection
	});

	test(`${line}: what a template becomes without a server, and bases that are refused`, async () => {
		const dockerfile = (template) => Template.toDockerfile(template);
		for (const [method, version, image] of [
			["fromDebianImage", "stable", "debian:stable"], ["fromUbuntuImage", "24.04", "ubuntu:24.04"], ["fromFedoraImage", "41", "fedora:41"],
			["fromAlpineImage", "3", "alpine:3"], ["fromArchImage", "latest", "archlinux:latest"], ["fromPythonImage", "3.13", "python:3.13"],
			["fromNodeImage", "22", "node:22"], ["fromBunImage", "1", "oven/bun:1"], ["fromImage", "a/b:c", "a/b:c"],
		]) {
			assert.match(dockerfile(Template()[method](version)), new RegExp(`^FROM ${image}\n`));
		}
		assert.match(dockerfile(Template().fromBaseImage()), /^FROM e2bdev\/base/);
		const text = dockerfile(Template().fromDockerfile("FROM a/b:c\nWORKDIR /w\nRUN one")
			.skipCache().gitClone("https://git.example.com/r.git", "/r").aptInstall(["curl", "jq"]).pipInstall("numpy").npmInstall("left-pad", { g: true }).bunInstall("left-pad").setWorkdir("/w2"));
		for (const line of ["FROM a/b:c", "RUN one", "git clone https://git.example.com/r.git /r", "apt-get install -y curl jq", "pip install numpy", "npm install -g left-pad", "bun install left-pad", "WORKDIR /w2"]) {
			assert.ok(text.includes(line), `${line} in ${text}`);
		}
		for (const ready of [waitForPort(80), waitForURL("http://localhost"), waitForProcess("sleep"), waitForTimeout(1000)]) assert.ok(ready.getCmd());
		assert.throws(() => Template().fromTemplate("base").addMcpServer("exa"), BuildError);
		assert.throws(() => Template().fromTemplate("base").betaDevContainerPrebuild("/d"), BuildError);
		assert.throws(() => Template().fromTemplate("base").betaSetDevContainerStart("/d"), BuildError);

		const refused = (template, message) => assert.rejects(Template.build(template, `${name}-refused`), (err) => err instanceof BuildError && message.test(err.message));
		await refused(Template().fromAWSRegistry("a/b", { accessKeyId: "x", secretAccessKey: "y", region: "z" }), /registr/i);
		await refused(Template().fromGCPRegistry("a/b", { serviceAccountJSON: { a: 1 } }), /registr/i);
		await refused(Template().fromImage("a/b", { username: "x", password: "y" }), /registr/i);
		await refused(Template().fromUbuntuImage("no-such-tag"), /no-such-tag/);
		assert.equal(await Template.exists(`${name}-refused`), false);
	});

	test(`${line}: a failing step is named, and builds nothing`, async (t) => {
		const failing = Template().fromImage("modbox/base").runCmd("echo before").runCmd("echo why >&2; exit 7").runCmd("echo after");
		const log = [];
		const err = await Template.build(failing, `${name}-bad`, { onBuildLogs: (e) => log.push(e.message) }).catch((e) => e);
		assert.ok(err instanceof BuildError, String(err));
		assert.match(err.message, /7/);
		assert.ok(log.some((m) => m.includes("why")) && !log.some((m) => m === "after"), log.join("\n"));
		assert.equal(await Template.exists(`${name}-bad`), false);
	});

	test(`${line}: tags`, async (t) => {
		const tagged = `${name}-tags`;
		remove(t, tagged);
		const build = (text) => Template().fromTemplate("base").runCmd(`echo ${text} >/home/user/v`);
		await Template.build(build("1"), tagged, { tags: ["v1", "stable"] });
		await Template.build(build("2"), `${tagged}:v2`);
		const read = async (ref) => (await create(t, Sandbox, ref)).files.read("/home/user/v");
		assert.equal(await read(`${tagged}:stable`), "1\n");
		assert.equal(await read(`${tagged}:v2`), "2\n");
		await Template.assignTags(`${tagged}:v2`, ["stable", "default"]);
		assert.equal(await read(`${tagged}:stable`), "2\n");
		assert.equal(await read(tagged), "2\n");
		assert.deepEqual((await Template.getTags(tagged)).map((x) => x.tag).sort(), ["default", "stable", "v1", "v2"]);
		await Template.removeTags(tagged, "v1");
		await assert.rejects(Template.removeTags(tagged, "v1"));
		await assert.rejects(Sandbox.create(`${tagged}:v1`));
	});
}

test("a template with a clone of a repository, on E2B's own base", async (t) => {
	const { Sandbox, Template } = lines["2.51"];
	remove(t, "cloned");
	const template = Template().fromBaseImage().setUser("root").skipCache()
		.runCmd("git init -q --bare -b main /srv/repo.git && chmod -R a+rX /srv/repo.git").setUser("user")
		.gitClone("/srv/repo.git", "/home/user/cloned", { user: "root" });
	await Template.build(template, "cloned");
	const sbx = await create(t, Sandbox, "cloned");
	assert.equal((await sbx.commands.run("ls -d cloned/.git")).stdout, "cloned/.git\n");
});

test("builds of templates: refusals, and the routes of the command line", async (t) => {
	const post = (path, body) => call("POST", path, { headers: { ...key, "Content-Type": "application/json" }, body: JSON.stringify(body) });
	for (const [body, said] of [[{ name: "UPPER" }, "UPPER"], [{ name: "base" }, "template of the server"], [{ name: "x", tags: ["a b"] }, "tags"]]) {
		const res = await post("/v3/templates", body);
		assert.equal(res.status, 400, res.text);
		assert.ok(res.json.message.includes(said), res.text);
	}
	remove(t, "by-hand");
	const begun = await post("/v3/templates", { name: "by-hand" });
	assert.equal(begun.status, 202, begun.text);
	const { templateID, buildID } = begun.json;
	const start = `/v2/templates/${templateID}/builds/${buildID}`;
	for (const [body, said] of [
		[{ fromTemplate: "base", steps: [{ type: "HEALTHCHECK" }] }, "steps[0].type"],
		[{ fromTemplate: "base", steps: [{ type: "COPY", args: ["a", "b"], filesHash: "00" }] }, "steps[0].filesHash"],
		[{ fromTemplate: "base", steps: [{ type: "USER", args: ["a\nRUN x"] }] }, "steps[0].args"],
		[{ fromImage: "a\nRUN x" }, "fromImage"],
		[{}, "fromImage"],
	]) {
		const res = await post(start, body);
		assert.equal(res.status, 400, res.text);
		assert.ok(res.json.message.includes(said), res.text);
	}
	const { json: place } = await call("GET", `/templates/${templateID}/files/abc`, { headers: key });
	assert.equal(place.present, false);
	const elsewhere = await fetch(place.url.replace(/\?.*$/, "?upload=wrong.secret"), { method: "PUT", body: "x" });
	assert.equal(elsewhere.status, 404);
	const garbage = await fetch(place.url, { method: "PUT", body: "this is no tar" });
	assert.equal(garbage.status, 200);
	const started = await post(start, { fromTemplate: "base", steps: [{ type: "COPY", args: ["a", "b"], filesHash: "abc" }] });
	assert.equal(started.status, 202, started.text);
	let status;
	while ((status = (await call("GET", `/templates/${templateID}/builds/${buildID}/status`, { headers: key })).json).status === "building") await moment();
	assert.equal(status.status, "error");
	assert.match(status.reason.message, /tar/);
	assert.equal((await post(start, { fromTemplate: "base" })).status, 409);
	assert.equal((await call("GET", `/templates/other/builds/${buildID}/status`, { headers: key })).status, 404);
});
