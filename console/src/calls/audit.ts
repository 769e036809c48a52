// Calls of the API about the audit log, and its records as files.
import { call, type Page, type Schemas } from "../api.ts";

export type Entry = Schemas["AuditEntry"];
export type Report = Schemas["AuditReport"];

export interface Filter {
	/** Whether the records of the whole installation are meant. */
	installation: boolean;
	action: string;
	object: string;
	user: string;
	outcome: string;
	/** Words that the records have. */
	search: string;
	/** Points in time as the field of a form has them, in the user's own time zone. */
	since: string;
	until: string;
}

export const everything: Filter = { installation: false, action: "", object: "", user: "", outcome: "", search: "", since: "", until: "" };

/** page returns records, the newest first, from a cursor on. */
export function page(f: Filter, limit: number, cursor?: string, signal?: AbortSignal): Promise<Page<Entry>> {
	const q = new URLSearchParams({ limit: String(limit), order: "desc" });
	for (const name of ["action", "object", "user", "outcome", "search"] as const) if (f[name].trim()) q.set(name, f[name].trim());
	for (const name of ["since", "until"] as const) if (f[name]) q.set(name, new Date(f[name]).toISOString());
	if (cursor) q.set("cursor", cursor);
	return call("GET", `/audit${f.installation ? "/installation" : ""}?${q}`, undefined, signal);
}

export const verify = (signal?: AbortSignal) => call<Report>("GET", "/audit/verify", undefined, signal);

/** columns are the fields of a record in a table, in this order. */
const columns = [
	"seq", "time", "action", "outcome", "status", "duration_ms", "user_id", "token_id", "session_id", "role", "administrator", "via", "address", "user_agent", "workspace_id",
	"object_kind", "object_id", "object_name", "command", "details", "stdout", "stderr", "output_truncated", "request_id", "route", "permission",
] as const;

/** cell quotes a value for a table. A text that a spreadsheet would take for a formula becomes plain text, also when it
 * would split the cell before it, with quotes and spaces between. */
function cell(value: unknown): string {
	if (value === undefined || value === null) return "";
	let text = typeof value === "string" ? value : JSON.stringify(value);
	if (typeof value !== "number") text = text.replace(/[=+\-@](?<=(?:^|[;\t\r\n])["'\s]*.)|[\t\r](?<=(?:^|;).)/gs, "'$&");
	return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export type Format = "csv" | "jsonl";

/** head is what a file of records begins with. */
export const head = (format: Format) => (format === "csv" ? `${columns.join(",")}\r\n` : "");

/** written returns records as a part of a file. JSON lines have the hashes of the chain as well, so that they can be verified. */
export function written(entries: Entry[], format: Format): Blob {
	const line = format === "jsonl" ? (e: Entry) => `${JSON.stringify(e)}\n` : ({ record }: Entry) => `${columns.map((c) => cell(record[c])).join(",")}\r\n`;
	return new Blob([entries.map(line).join("")]);
}
