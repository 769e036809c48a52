// How times and sizes are written.
import type { SandboxState } from "./api.ts";

/** span writes a number of seconds in its two largest units: 2h 5m. */
export function span(seconds: number): string {
	const s = Math.max(0, Math.floor(seconds));
	if (s < 60) return `${s}s`;
	if (s < 3600) return s % 60 && s < 600 ? `${Math.floor(s / 60)}m ${s % 60}s` : `${Math.floor(s / 60)}m`;
	if (s < 86400) return s % 3600 >= 60 ? `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m` : `${Math.floor(s / 3600)}h`;
	return s % 86400 >= 3600 ? `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h` : `${Math.floor(s / 86400)}d`;
}

export const since = (time: string, now: number) => span((now - Date.parse(time)) / 1000);
/** ago writes how long ago something was. */
export const ago = (time: string, now: number) => (now - Date.parse(time) < 2000 ? "just now" : `${since(time, now)} ago`);
export const until = (time: string, now: number) => span((Date.parse(time) - now) / 1000);

// Made once: it takes longer than to write a time.
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** moment writes a point in time in the user's own way. */
export const moment = (time: string) => full.format(new Date(time));

export function bytes(n: number): string {
	const units = ["B", "KiB", "MiB", "GiB", "TiB"];
	let i = 0;
	while (n >= 1024 && i < units.length - 1) {
		n /= 1024;
		i++;
	}
	return `${n >= 100 || Number.isInteger(n) ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

/** cores writes a number of thousandths of a core. */
export function cores(millicores: number): string {
	return `${millicores / 1000} ${millicores === 1000 ? "core" : "cores"}`;
}

const factors: Record<string, number> = { m: 1 / 1000, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };
/** quantity reads 512Mi and 250m as the API writes them. */
export function quantity(text: string | undefined): number | undefined {
	const [, number, unit] = /^([\d.]+)(m|Ki|Mi|Gi|Ti)?$/.exec(text ?? "") ?? [];
	if (number === undefined) return undefined;
	return Number(number) * (factors[unit ?? ""] ?? 1);
}

/** live are the states of sandboxes that have not ended. */
export const live: SandboxState[] = ["provisioning", "running", "pausing", "paused", "resuming", "destroying"];
export const ended: SandboxState[] = ["destroyed", "failed"];
export const hasEnded = (state: SandboxState) => ended.includes(state);

/** A tone is a colour with a meaning. */
export type Tone = "good" | "busy" | "quiet" | "warn" | "bad";
export const tones: Record<SandboxState, Tone> = {
	provisioning: "busy", running: "good", pausing: "busy", paused: "warn", resuming: "busy", destroying: "busy", destroyed: "quiet", failed: "bad",
};
