// The destinations that a sandbox may reach, given by the clients. The two names have servers of HTTP which the server's
// sandboxes may reach (scripts/with-server.sh).
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, lines, networkOf } from "./setup.mjs";

const [first, second] = ["deb.debian.org", "security.debian.org"];
const all = "0.0.0.0/0";

/** reach asks a server for its page under the name of a host, and resolves to the first line of the answer. */
async function reach(sbx, address, host = address) {
	const line = `exec 3<>/dev/tcp/${address}/80 && printf 'HEAD / HTTP/1.1\\r\\nHost: ${host}\\r\\nConnection: close\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep HTTP`;
	return (await sbx.commands.run(line, { timeoutMs: 120_000 })).stdout;
}

for (const [line, { CommandExitError, Sandbox }] of Object.entries(lines)) test(`${line}: rules about destinations`, async (t) => {
	const fails = (promise) => assert.rejects(promise, CommandExitError);
	const sbx = await create(t, Sandbox, "modbox/base", { network: { allowOut: [first], denyOut: ({ allTraffic }) => [allTraffic] } });
	assert.deepEqual(await networkOf(sbx), { allowOut: [first], denyOut: [all], allowPublicTraffic: true });
	assert.match(await reach(sbx, first), /^HTTP\/1/);
	await fails(reach(sbx, second));
	await fails(reach(sbx, first, second)); // on a connection to the address of the allowed name

	const [fork] = await sbx.fork();
	t.after(() => fork.kill());
	assert.match(await reach(fork, first), /^HTTP\/1/);
	await fails(reach(fork, second));

	await sbx.updateNetwork({ allowOut: [second], denyOut: [all] });
	assert.match(await reach(sbx, second), /^HTTP\/1/);
	await fails(reach(sbx, first));
	const address = (await fork.commands.run(`getent ahostsv4 ${first} | head -n 1 | cut -d' ' -f1`)).stdout.trim();
	await sbx.updateNetwork({ denyOut: [address] });
	await fails(reach(sbx, address, first));
	await sbx.updateNetwork({ allowOut: [address], allowInternetAccess: false });
	assert.match(await reach(sbx, address, first), /^HTTP\/1/);
	await sbx.updateNetwork({});
	assert.match(await reach(sbx, first), /^HTTP\/1/);
});
