import { Activity } from "lucide-react";
import type { SandboxEvent } from "../api.ts";
import { ago, moment, type Tone } from "../format.ts";
import { Empty } from "../parts.tsx";

/** tone returns the colour of an event. */
function tone(e: SandboxEvent): Tone {
	if (/failed|rolled_back/.test(e.type) || (e.type === "exec" && e.data?.exit_code !== undefined && Number(e.data.exit_code) !== 0)) return "bad";
	if (/^(running|resumed|created|recovered)/.test(e.type)) return "good";
	if (/^paus/.test(e.type)) return "warn";
	if (/ing$/.test(e.type)) return "busy";
	return "quiet";
}

function fact(value: unknown): string {
	const text = typeof value === "string" ? value : JSON.stringify(value);
	return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

/** Timeline shows the events of a sandbox, the newest first. */
export function Timeline({ events, now }: { events: SandboxEvent[]; now: number }) {
	if (events.length === 0) return <Empty icon={<Activity size={22} />} title="No events yet" text="What happens to the sandbox appears here as it happens." />;
	return (
		<ol className="timeline" aria-label="Events, the newest first">
			{events.map((e) => (
				<li key={e.seq} data-tone={tone(e)}>
					<time dateTime={e.time} title={moment(e.time)}>{ago(e.time, now)}</time>
					<div className="event">
						<p><b>{e.type.replaceAll("_", " ")}</b> {e.message}</p>
						{e.data && Object.keys(e.data).length > 0 && <p className="chips">{Object.entries(e.data).map(([k, v]) => <span key={k} className="chip mono">{k} {fact(v)}</span>)}</p>}
					</div>
				</li>
			))}
		</ol>
	);
}
