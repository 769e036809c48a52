// Records which methods of the published clients the tests call, and compares them with the methods that the type
// definitions of the packages declare. A call that a client makes by itself inside of another does not count.
import { AsyncLocalStorage } from "node:async_hooks";
import { appendFileSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const inside = new AsyncLocalStorage();
const seen = new Set();
const wrapped = new Set();

function count(line, method) {
	const call = `${line} ${method}`;
	if (inside.getStore() || seen.has(call)) return;
	seen.add(call);
	if (process.env.E2B_CALLS) appendFileSync(process.env.E2B_CALLS, `${call}\n`);
}

/** parts are classes that the packages do not export, by a method that no other of their classes has. */
const parts = { disconnect: "CommandHandle", stop: "WatchHandle", nextItems: "Paginator", hasNext: "Paginator" };

/** wrap has the methods and getters of an object count their calls: as Class.method of a class, Class#method of a prototype. */
function wrap(line, owner, object) {
	if (wrapped.has(object)) return;
	wrapped.add(object);
	for (const [name, d] of Object.entries(Object.getOwnPropertyDescriptors(object))) {
		if (name === "constructor" || name.startsWith("_") || !d.configurable || typeof (d.get ?? d.value) !== "function" || /^class\b/.test(String(d.value))) continue;
		const original = d.get ?? d.value;
		const counting = function (...args) {
			count(line, owner + (typeof object === "function" ? "." : "#") + name);
			const out = inside.run(true, () => original.apply(this, args));
			return out instanceof Promise ? out.then((v) => meet(line, v)) : meet(line, out);
		};
		Object.defineProperty(object, name, d.get ? { ...d, get: counting } : { ...d, value: counting });
	}
}

/** meet wraps the class of a value that a client returned, if it is a part of the client. It returns the value. */
function meet(line, value) {
	for (let p = value && typeof value === "object" ? Object.getPrototypeOf(value) : null; p && p !== Object.prototype; p = Object.getPrototypeOf(p)) {
		const part = Object.keys(parts).find((method) => Object.hasOwn(p, method));
		if (part) wrap(line, parts[part], p);
	}
	return value;
}

/** record has a package count the calls of its methods. */
export function record(line, client) {
	const { Sandbox } = client;
	const example = new Sandbox({ sandboxId: "example", envdVersion: "0.6.4" });
	const classes = { Sandbox, SandboxApi: Object.getPrototypeOf(Sandbox), Volume: client.Volume, Secret: client.Secret, TemplateBase: client.TemplateBase, CommandExitError: client.CommandExitError };
	const objects = { Filesystem: example.files, Commands: example.commands, Pty: example.pty, Git: example.git };
	for (const [name, c] of Object.entries(classes)) {
		wrap(line, name, c);
		wrap(line, name, c.prototype);
	}
	for (const [name, o] of Object.entries(objects)) wrap(line, name, Object.getPrototypeOf(o));
}

/** recordCode is record for the class of a code interpreter, on top of a recorded client. */
export function recordCode(line, Sandbox) {
	wrap(line, "Sandbox", Sandbox.prototype);
}

/** The classes of the definitions whose methods do nothing with a server: settings, values, and what only the clients use. */
const plumbing = ["ClientFactory", "ConnectionConfig", "ApiClient", "EnvdApiClient", "VolumeConnectionConfig", "LogEntry", "ReadyCmd", "E2B", "OutputMessage", "Result", "Execution"];
const paginators = ["Paginator", "SandboxPaginator", "SnapshotPaginator", "SecretPaginator"];

/** declared returns the public methods and getters of the classes in a package's definitions. */
export function declared(pkg) {
	const file = fileURLToPath(new URL(`node_modules/${pkg}/dist/index.d.ts`, import.meta.url));
	const out = new Set();
	let owner, indent;
	for (const line of readFileSync(file, "utf8").replace(/\/\*[^]*?\*\//g, "").split("\n")) {
		const begin = /^(?:export )?declare (?:abstract )?class (\w+)/.exec(line);
		if (begin) [owner, indent] = [begin[1], undefined];
		else if (line.startsWith("}")) owner = undefined;
		else indent ??= /^ +/.exec(line)?.[0]; // of the members of a class
		const method = new RegExp(`^${indent}(?!private|protected|constructor)(static )?(?:abstract |get )*(\\w+)(?:<.*>)?\\(`).exec(line);
		if (owner && method && !plumbing.includes(owner)) out.add(`${paginators.includes(owner) ? "Paginator" : owner}${method[1] ? "." : "#"}${method[2]}`);
	}
	return out;
}
