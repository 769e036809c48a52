// What a sandbox is, and what it uses.
import { RefreshCw } from "lucide-react";
import { type ReactNode, useEffect, useState } from "react";
import { Link } from "wouter";
import { api, message, type Sandbox, type Stats } from "../api.ts";
import { CopyButton } from "../parts.tsx";
import { reach } from "../rules.tsx";
import { ago, bytes, cores, hasEnded, moment, until } from "../format.ts";

/** onIdle is what happens to a sandbox that was idle for long enough. */
const onIdle: Record<string, string> = { destroy: "destroyed", pause: "paused", pause_without_memory: "paused without memory" };

function Item({ name, children, title }: { name: string; children: ReactNode; title?: string | undefined }) {
	return <div className="item"><dt>{name}</dt><dd title={title}>{children}</dd></div>;
}

export function Overview({ sb, now }: { sb: Sandbox; now: number }) {
	const labels = Object.entries(sb.labels ?? {});
	const ports = sb.network.ports ?? [];
	const time = (t?: string) => (t ? ago(t, now) : "–");
	return (
		<div className="overview">
			<section className="card">
				<h2>Sandbox</h2>
				<dl>
					<Item name="Image" title={sb.image_digest}><span className="mono">{sb.image || "–"}</span></Item>
					{sb.snapshot_id && <Item name="Snapshot"><span className="mono">{sb.snapshot_id}</span></Item>}
					{sb.parent_id && <Item name="Forked from"><Link href={`/sandboxes/${sb.parent_id}`} className="mono">{sb.parent_id}</Link></Item>}
					{sb.description && <Item name="Description">{sb.description}</Item>}
					<Item name="Created" title={moment(sb.created_at)}>{time(sb.created_at)}</Item>
					<Item name="Started" title={sb.started_at && moment(sb.started_at)}>{time(sb.started_at)}</Item>
					{sb.last_activity_at && !hasEnded(sb.state) && <Item name="Last used" title={moment(sb.last_activity_at)}>{time(sb.last_activity_at)}</Item>}
					{sb.ended_at && <Item name="Ended" title={moment(sb.ended_at)}>{time(sb.ended_at)}</Item>}
					{sb.cause && <Item name="Cause" title={sb.cause.message}>{sb.cause.code}</Item>}
				</dl>
			</section>
			<section className="card">
				<h2>Time</h2>
				<dl>
					<Item name="Ends" title={sb.deadline && moment(sb.deadline)}>{hasEnded(sb.state) ? "–" : sb.deadline ? <>in {until(sb.deadline, now)}</> : "never by itself"}</Item>
					<Item name="When idle" title={sb.idle_deadline && moment(sb.idle_deadline)}>{sb.timeouts.idle_seconds ? <>{onIdle[sb.timeouts.on_idle ?? "destroy"]}{sb.idle_deadline && <> in {until(sb.idle_deadline, now)}</>}</> : "nothing happens"}</Item>
					{sb.state === "paused" && <Item name="Saved" title={sb.paused_at && moment(sb.paused_at)}>{sb.paused_without_memory ? "files without memory: a resume starts it anew" : "memory and files: a resume goes on"}</Item>}
					{sb.memory_lost_reason && !hasEnded(sb.state) && <Item name="Memory">not brought back by the last resume: {sb.memory_lost_reason}</Item>}
					{sb.paused_deadline && <Item name="Paused until" title={moment(sb.paused_deadline)}>destroyed in {until(sb.paused_deadline, now)}</Item>}
					<Item name="Checkpoints">{sb.checkpoint_interval_seconds ? `every ${sb.checkpoint_interval_seconds} s` : "only on request"}</Item>
				</dl>
			</section>
			<Use sb={sb} />
			<section className="card">
				<h2>Network</h2>
				<dl>
					<Item name="It reaches">{reach(sb.network)}</Item>
					{ports.map((p) => (
						<Item key={p.port} name={`Port ${p.port}`}>
							{p.url && !hasEnded(sb.state) ? <a href={p.url} target="_blank" rel="noopener noreferrer" className="clip">{p.url}</a> : "published"} {p.url && <CopyButton text={p.url} label={`Copy the URL of port ${p.port}`} />}<small className="muted">{p.access}</small>
						</Item>
					))}
					{ports.length === 0 && <Item name="Ports">none published</Item>}
					{sb.network.request_host && <Item name="Host seen"><span className="mono">{sb.network.request_host}</span></Item>}
					{sb.network.https_ports.length > 0 && <Item name="HTTPS ports">{sb.network.https_ports.join(", ")}</Item>}
				</dl>
			</section>
			{labels.length > 0 && <section className="card"><h2>Labels</h2><div className="chips">{labels.map(([k, v]) => <span key={k} className="chip mono">{k}={v}</span>)}</div></section>}
		</div>
	);
}

/** Use shows what a running sandbox uses, measured when it is shown or on request. */
function Use({ sb }: { sb: Sandbox }) {
	const [stats, setStats] = useState<Stats | null>(null);
	const [error, setError] = useState("");
	const [turn, setTurn] = useState(0);
	const runs = sb.state === "running";
	useEffect(() => {
		if (!runs) return;
		const reading = new AbortController();
		api.stats(sb.id, reading.signal).then(
			(s) => {
				setStats(s);
				setError("");
			},
			(err: unknown) => !reading.signal.aborted && setError(message(err)),
		);
		return () => reading.abort();
	}, [sb.id, runs, turn]);
	return (
		<section className="card">
			<h2>Use <span className="grow" />{runs && <button type="button" className="icon-button small" aria-label="Measure again" title="Measure again" onClick={() => setTurn((n) => n + 1)}><RefreshCw size={14} /></button>}</h2>
			{error && <p className="note bad">{error}</p>}
			{runs && stats ? (
				<dl>
					<Meter name="Memory" used={stats.memory_bytes} limit={stats.memory_limit_bytes} />
					<Meter name="Disk" used={stats.disk_bytes} limit={stats.disk_limit_bytes} />
					<Item name="CPU time">{(stats.cpu_nanoseconds / 1e9).toFixed(1)} s <small className="muted">· at most {cores(stats.cpu_limit_millicores)} at a time</small></Item>
					<Item name="Processes">{stats.processes}</Item>
				</dl>
			) : (
				<dl>
					<Item name="CPU">{sb.resources.cpu}</Item>
					<Item name="Memory">{sb.resources.memory}</Item>
					<Item name="Disk">{sb.resources.disk}</Item>
				</dl>
			)}
		</section>
	);
}

function Meter({ name, used, limit }: { name: string; used: number; limit: number }) {
	return (
		<Item name={name}>
			<span className="meter-text">{bytes(used)} <small className="muted">of {bytes(limit)}</small></span>
			<meter aria-label={name} min={0} max={limit || 1} high={(limit || 1) * 0.85} value={used} />
		</Item>
	);
}
