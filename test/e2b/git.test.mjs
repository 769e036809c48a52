// The module git of the clients, against a repository in the sandbox: no network.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, lines } from "./setup.mjs";

for (const [line, { CommandExitError, GitUpstreamError, InvalidArgumentError, Sandbox }] of Object.entries(lines)) {
	test(`${line}: git`, async (t) => {
		const sbx = await create(t, Sandbox, { timeoutMs: 300_000 });
		const { git, files } = sbx;
		const [repo, remote] = ["/home/user/repo", "/home/user/remote.git"];
		await git.init(remote, { bare: true, initialBranch: "main" });
		await git.init(repo, { initialBranch: "main" });
		await git.configureUser("An Author", "author@example.com");
		assert.equal(await git.getConfig("user.name"), "An Author");
		assert.equal(await git.getConfig("no.such"), undefined);
		await git.setConfig("pull.rebase", "false", { scope: "local", path: repo });
		assert.equal(await git.getConfig("pull.rebase", { scope: "local", path: repo }), "false");

		await files.write(`${repo}/a.txt`, "one\n");
		await files.write(`${repo}/b.txt`, "b\n");
		assert.equal((await git.status(repo)).isClean, false);
		await git.add(repo, { files: ["a.txt"] });
		const staged = await git.status(repo);
		assert.deepEqual([staged.currentBranch, staged.stagedCount, staged.untrackedCount], ["main", 1, 1]);
		await git.commit(repo, "first");
		await git.add(repo);
		await git.commit(repo, "second", { authorName: "Another", authorEmail: "another@example.com" });
		assert.equal((await git.status(repo)).isClean, true);

		await git.createBranch(repo, "topic");
		await git.checkoutBranch(repo, "main");
		assert.deepEqual(await git.branches(repo), { branches: ["main", "topic"], currentBranch: "main" });
		await git.deleteBranch(repo, "topic", { force: true });
		assert.deepEqual((await git.branches(repo)).branches, ["main"]);

		await assert.rejects(git.push(repo), (err) => err instanceof GitUpstreamError || err instanceof CommandExitError);
		await git.remoteAdd(repo, "origin", remote);
		await git.remoteAdd(repo, "origin", remote, { overwrite: true });
		assert.equal(await git.remoteGet(repo, "origin"), remote);
		assert.equal(await git.remoteGet(repo, "none"), undefined);
		await assert.rejects(git.pull(repo), GitUpstreamError);
		await git.push(repo, { remote: "origin", branch: "main" });

		await git.clone(remote, { path: "/home/user/clone", branch: "main" });
		assert.equal(await files.read("/home/user/clone/a.txt"), "one\n");
		await files.write("/home/user/clone/a.txt", "two\n");
		await git.add("/home/user/clone");
		await git.commit("/home/user/clone", "third");
		await git.push("/home/user/clone");
		await git.pull(repo);
		assert.equal(await files.read(`${repo}/a.txt`), "two\n");

		await files.write(`${repo}/a.txt`, "changed\n");
		await git.restore(repo, { paths: ["a.txt"] });
		assert.equal(await files.read(`${repo}/a.txt`), "two\n");
		await git.reset(repo, { mode: "hard", target: "HEAD~1" });
		assert.equal(await files.read(`${repo}/a.txt`), "one\n");

		await git.dangerouslyAuthenticate({ username: "name", password: "secret-word", host: "git.example.com" });
		assert.match((await sbx.commands.run("cat ~/.git-credentials")).stdout, /name:secret-word@git\.example\.com/);

		await assert.rejects(git.clone("/home/user/nowhere"), CommandExitError);
		await assert.rejects(git.remoteAdd(repo, "", ""), InvalidArgumentError);
		await assert.rejects(git.commit(repo, "nothing"), CommandExitError);
	});
}
