// A create request as programs write it: TypeScript, Python, curl and the command line.
import type { CreateSandbox } from "./api.ts";

export const languages = ["TypeScript", "Python", "curl", "CLI"] as const;
export type Language = (typeof languages)[number];

const camel = (name: string) => name.replace(/_([a-z])/g, (_, c: string) => c.toUpperCase());

/** shell quotes a word for a shell. */
export function shell(word: string): string {
	return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** typescript writes a value; the keys of maps that callers name themselves stay as they are. */
function typescript(value: unknown, indent: string, named = false): string {
	if (Array.isArray(value)) return `[${value.map((v) => typescript(v, indent)).join(", ")}]`;
	if (typeof value !== "object" || value === null) return JSON.stringify(value);
	const deeper = `${indent}  `;
	const lines = Object.entries(value).map(([k, v]) => {
		const key = named ? k : camel(k);
		return `${deeper}${/^[A-Za-z_]\w*$/.test(key) ? key : JSON.stringify(key)}: ${typescript(v, deeper, k === "env" || k === "labels")},\n`;
	});
	return lines.length === 0 ? "{}" : `{\n${lines.join("")}${indent}}`;
}

function python(value: unknown): string {
	if (value === true) return "True";
	if (value === false) return "False";
	if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
	if (typeof value !== "object" || value === null) return JSON.stringify(value);
	return `{${Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}: ${python(v)}`).join(", ")}}`;
}

function duration(seconds: number): string {
	if (seconds % 3600 === 0) return `${seconds / 3600}h`;
	return seconds % 60 === 0 ? `${seconds / 60}m` : `${seconds}s`;
}

function commandLine(r: CreateSandbox): string {
	const words = ["modbox create"];
	const flag = (name: string, value?: string | number | null) => {
		if (value !== undefined && value !== null && value !== "") words.push(`--${name} ${shell(String(value))}`);
	};
	if (r.image) words.push(shell(r.image));
	flag("snapshot", r.snapshot);
	flag("name", r.name);
	flag("memory", r.resources?.memory);
	flag("cpu", r.resources?.cpu);
	flag("disk", r.resources?.disk);
	if (r.ttl_seconds) flag("ttl", duration(r.ttl_seconds));
	if (r.timeouts?.idle_seconds) flag("idle", duration(r.timeouts.idle_seconds));
	flag("on-idle", r.timeouts?.on_idle);
	if (r.network?.enabled) words.push("--network");
	for (const entry of r.network?.allow_out ?? []) flag("allow-out", entry);
	for (const entry of r.network?.deny_out ?? []) flag("deny-out", entry);
	for (const port of r.network?.ports ?? []) flag("port", port);
	flag("request-host", r.network?.request_host);
	for (const port of r.network?.https_ports ?? []) flag("https-port", port);
	for (const [name, value] of Object.entries(r.env ?? {})) flag("env", `${name}=${value}`);
	return words.join(" \\\n  ");
}

/** snippet returns the program that makes the same request. server is the URL of the API. */
export function snippet(language: Language, request: CreateSandbox): string {
	switch (language) {
		case "TypeScript":
			return `import { Modbox } from "modbox-sdk";\n\nconst modbox = new Modbox();\nconst sandbox = await modbox.sandboxes.create(${typescript(request, "")});\n`;
		case "Python": {
			const lines = Object.entries(request).map(([k, v]) => `    ${k}=${python(v)},\n`);
			return `from modbox import Modbox\n\nmodbox = Modbox()\nsandbox = modbox.sandboxes.create(${lines.length ? `\n${lines.join("")}` : ""})\n`;
		}
		case "curl":
			return `curl -fsS "$MODBOX_URL/v1/sandboxes" \\\n  -H "Authorization: Bearer $MODBOX_API_TOKEN" \\\n  -H "Content-Type: application/json" \\\n  -d ${shell(JSON.stringify(request, null, 2))}\n`;
		case "CLI":
			return `${commandLine(request)}\n`;
	}
}
