// Fails unless the tests have called each method of the published clients; the file E2B_CALLS has the calls.
import { readFileSync } from "node:fs";
import { declared } from "./record.mjs";

const called = new Set(readFileSync(process.env.E2B_CALLS, "utf8").trim().split("\n"));
// How many methods the definitions of these versions have: a change of their form must not empty the list.
const packages = [
	["2.51", "e2b", 156],
	["2.45", "e2b-old", 156],
	["code", "@e2b/code-interpreter", 5],
	["code-old", "code-interpreter-old", 5],
];
let failed = 0;
for (const [line, name, number] of packages) {
	const methods = [...declared(name)];
	const missing = methods.filter((m) => !called.has(`${line} ${m}`));
	if (methods.length !== number || missing.length > 0) failed++;
	console.log(`${name}: ${methods.length} methods (${number} are known), not called: ${missing.join(" ") || "none"}`);
}
process.exit(failed ? 1 : 0);
