// The network of a sandbox in forms: the destinations that it may reach, and how requests reach its servers.
import type { Sandbox } from "./api.ts";
import { Field } from "./parts.tsx";

export interface Rules {
	allow: string;
	deny: string;
}

/** everything is the range of all destinations. */
export const everything = "0.0.0.0/0";

/** entries are the destinations in a text, one on a line or behind commas. */
export const entries = (text: string) => text.split(/[\s,]+/).filter((entry) => entry !== "");

/** reach says what a sandbox reaches on the network. */
export function reach({ enabled, allow_out: allow, deny_out: deny }: Pick<Sandbox["network"], "enabled" | "allow_out" | "deny_out">): string {
	if (!enabled) return "no network";
	if (deny.length === 0) return "the internet";
	if (!deny.includes(everything)) return "the internet, except for denied destinations";
	return allow.length === 0 ? "nothing: all destinations are denied" : "only the allowed destinations";
}

/** RuleFields are the allowed and the denied destinations. Allowed ones alone deny all others. */
export function RuleFields({ rules, faults, onChange }: { rules: Rules; faults: { allow: string | undefined; deny: string | undefined }; onChange: (rules: Rules) => void }) {
	return (
		<>
			<Field label="Allowed destinations" hint="Addresses, ranges and names, such as pypi.org or *.example.com, one on a line. Empty: all that are not denied." error={faults.allow}>
				{(p) => <textarea {...p} className="mono" rows={2} value={rules.allow} spellCheck={false} autoComplete="off" onChange={(e) => onChange({ ...rules, allow: e.target.value })} />}
			</Field>
			<Field label="Denied destinations" hint={`Addresses and ranges. Empty with allowed ones: ${everything}, which denies everything else.`} error={faults.deny}>
				{(p) => <textarea {...p} className="mono" rows={2} value={rules.deny} spellCheck={false} autoComplete="off" onChange={(e) => onChange({ ...rules, deny: e.target.value })} />}
			</Field>
		</>
	);
}

/** Requests is how requests reach the servers of a sandbox. */
export interface Requests {
	host: string;
	/** The ports whose servers speak HTTPS. */
	https: string;
}

export const arePorts = (list: string[]) => list.every((p) => /^\d+$/.test(p) && Number(p) >= 1 && Number(p) <= 65_535);
export const noPorts = "Ports are numbers from 1 to 65535, such as 3000, 8080.";

/** RequestFields are how requests reach the servers of a sandbox. */
export function RequestFields({ requests, faults, onChange }: { requests: Requests; faults: { host: string | undefined; https: string | undefined }; onChange: (requests: Requests) => void }) {
	return (
		<>
			<Field label="Host that its servers see" hint={"Empty: the host of the URL. localhost:${PORT} suits development servers that refuse other hosts."} error={faults.host}>
				{(p) => <input {...p} className="mono" value={requests.host} placeholder={"localhost:${PORT}"} autoComplete="off" spellCheck={false} onChange={(e) => onChange({ ...requests, host: e.target.value })} />}
			</Field>
			<Field label="Ports whose servers speak HTTPS" hint="Their certificates are not checked." error={faults.https}>
				{(p) => <input {...p} value={requests.https} placeholder="8443" autoComplete="off" inputMode="numeric" onChange={(e) => onChange({ ...requests, https: e.target.value })} />}
			</Field>
		</>
	);
}
