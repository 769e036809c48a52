// The same program with Modbox's own SDK. The variables MODBOX_URL and MODBOX_API_TOKEN lead to the server.
import { createInterface } from "node:readline";
import { Sandbox } from "modbox-sdk";

for await (const word of createInterface({ input: process.stdin })) {
	const sbx = await Sandbox.create();
	const { stdout } = await sbx.run(`echo ${word}`);
	process.stdout.write(stdout);
	await sbx.delete();
	console.log("ended");
}
