// The first program of a user of E2B, again for each line of the input. The variables E2B_API_URL,
// E2B_SANDBOX_URL and E2B_API_KEY lead to a Modbox server.
import { createInterface } from "node:readline";
import { Sandbox } from "e2b";

for await (const word of createInterface({ input: process.stdin })) {
	const sbx = await Sandbox.create({ allowInternetAccess: false });
	const { stdout } = await sbx.commands.run(`echo ${word}`);
	process.stdout.write(stdout);
	await sbx.kill();
	console.log("ended");
}
