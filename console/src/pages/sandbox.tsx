import { ArrowLeft, CircleAlert, RefreshCw, SquareTerminal } from "lucide-react";
import { Tabs } from "radix-ui";
import { lazy, type ReactNode, Suspense, useCallback, useEffect, useState } from "react";
import { Link, useLocation } from "wouter";
import { SandboxButtons } from "../actions.tsx";
import { ApiError, api, listen, message, type Sandbox, type SandboxEvent, type Stats } from "../api.ts";
import { bytes, hasEnded, moment, since, until } from "../format.ts";
import { useNow, useTitle } from "../hooks.ts";
import { CopyButton, Empty, State } from "../parts.tsx";
import { useSession } from "../session.ts";
import { Timeline } from "./timeline.tsx";

const Terminal = lazy(() => import("../terminal.tsx"));

/** eventsMost is how many events of a sandbox are shown, the newest. */
const eventsMost = 1000;

/** useSandbox keeps a sandbox and its events current. */
function useSandbox(id: string) {
	const { store } = useSession();
	const [sb, setSb] = useState<Sandbox | null>(null);
	const [events, setEvents] = useState<SandboxEvent[]>([]);
	const [error, setError] = useState<ApiError | Error | null>(null);
	const put = useCallback((now: Sandbox) => {
		setSb((was) => (was && was.updated_at > now.updated_at ? was : now));
		store.put(now);
	}, [store]);
	useEffect(() => {
		const reading = new AbortController();
		const fail = (err: unknown) => {
			if (!reading.signal.aborted) setError(err instanceof Error ? err : new Error(String(err)));
		};
		const read = () => {
			api.sandbox(id, reading.signal).then((now) => {
				put(now);
				setError(null);
			}).catch(fail);
		};
		const add = (list: SandboxEvent[]) => setEvents((was) => {
			const known = new Map([...was, ...list].map((e) => [e.seq, e]));
			return [...known.values()].sort((a, b) => b.seq - a.seq).slice(0, eventsMost);
		});
		const readAll = () => {
			read();
			api.events(id, eventsMost, reading.signal).then(add).catch(fail);
		};
		const stop = listen({
			event: (e) => {
				add([e]);
				if (e.type !== "exec") read();
			},
			state: () => {},
			lost: readAll,
		}, id);
		readAll();
		return () => {
			reading.abort();
			stop();
		};
	}, [id, put]);
	return { sb, events, error, put };
}

export function SandboxPage({ id, tab }: { id: string; tab: string }) {
	const { mayWrite } = useSession();
	const { sb, events, error, put } = useSandbox(id);
	const [, navigate] = useLocation();
	const now = useNow();
	useTitle(sb?.name ?? "Sandbox");
	if (!sb) {
		if (!error) return <div className="page"><div className="skeleton" role="status" aria-busy="true"><span className="visually-hidden">Loading the sandbox</span>{Array.from({ length: 6 }, (_, i) => <i key={i} />)}</div></div>;
		const missing = error instanceof ApiError && error.status === 404;
		return (
			<Empty icon={<CircleAlert size={22} />} title={missing ? "There is no such sandbox" : "The sandbox cannot be shown"} text={missing ? "It is of another workspace, or it ended so long ago that its record is gone." : message(error)}>
				<Link href="/" className="button">Go to the sandboxes</Link>
			</Empty>
		);
	}
	const ended = hasEnded(sb.state);
	return (
		<div className="page sandbox-page">
			<header className="page-head">
				<Link href="/" className="icon-button" aria-label="Back to the list"><ArrowLeft size={16} /></Link>
				<div className="title">
					<h1 className="clip">{sb.name}</h1>
					<State state={sb.state} />
					<span className="id mono">{sb.id}<CopyButton text={sb.id} label="Copy the id" /></span>
				</div>
				<span className="grow" />
				<SandboxButtons sb={sb} onChange={put} />
			</header>
			{sb.cause && sb.state === "failed" && <p role="alert" className="alert bar"><CircleAlert size={16} aria-hidden="true" /><span><b>{sb.cause.code}</b> · {sb.cause.message}</span></p>}
			<Tabs.Root className="tabs" value={tab} onValueChange={(t) => navigate(`/sandboxes/${id}${t === "overview" ? "" : `/${t}`}`)}>
				<Tabs.List className="tab-list" aria-label="Sandbox">
					<Tabs.Trigger value="overview">Overview</Tabs.Trigger>
					{mayWrite && <Tabs.Trigger value="terminal">Terminal</Tabs.Trigger>}
					<Tabs.Trigger value="events">Events<small>{events.length}</small></Tabs.Trigger>
				</Tabs.List>
				<Tabs.Content value="overview" className="tab"><Overview sb={sb} now={now} /></Tabs.Content>
				{mayWrite && (
					<Tabs.Content value="terminal" className="tab fill">
						{ended ? (
							<Empty icon={<SquareTerminal size={22} />} title="The sandbox has ended" text="A terminal needs a sandbox that runs." />
						) : (
							<Suspense fallback={<p className="muted pad" role="status">Loading the terminal…</p>}><Terminal id={sb.id} /></Suspense>
						)}
					</Tabs.Content>
				)}
				<Tabs.Content value="events" className="tab"><Timeline events={events} now={now} /></Tabs.Content>
			</Tabs.Root>
		</div>
	);
}

function Item({ name, children, title }: { name: string; children: ReactNode; title?: string | undefined }) {
	return <div className="item"><dt>{name}</dt><dd title={title}>{children}</dd></div>;
}

function Overview({ sb, now }: { sb: Sandbox; now: number }) {
	const labels = Object.entries(sb.labels ?? {});
	const ports = sb.network.ports ?? [];
	const time = (t?: string) => (t ? <>{since(t, now)} ago</> : "–");
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
					<Item name="When idle" title={sb.idle_deadline && moment(sb.idle_deadline)}>{sb.timeouts.idle_seconds ? <>{sb.timeouts.on_idle || "destroy"}{sb.idle_deadline && <> in {until(sb.idle_deadline, now)}</>}</> : "nothing happens"}</Item>
					{sb.paused_deadline && <Item name="Paused until" title={moment(sb.paused_deadline)}>destroyed in {until(sb.paused_deadline, now)}</Item>}
					<Item name="Checkpoints">{sb.checkpoint_interval_seconds ? `every ${sb.checkpoint_interval_seconds} s` : "not by themselves"}</Item>
				</dl>
			</section>
			<Use sb={sb} />
			<section className="card">
				<h2>Network</h2>
				<dl>
					<Item name="Internet">{sb.network.enabled ? "reachable" : "closed"}</Item>
					{ports.map((p) => (
						<Item key={p.port} name={`Port ${p.port}`}>
							{p.url && !hasEnded(sb.state) ? <a href={p.url} target="_blank" rel="noopener noreferrer" className="clip">{p.url}</a> : "published"} <small className="muted">{p.access}</small>
						</Item>
					))}
					{ports.length === 0 && <Item name="Ports">none published</Item>}
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
					<Item name="CPU time">{(stats.cpu_nanoseconds / 1e9).toFixed(1)} s <small className="muted">of {stats.cpu_limit_millicores / 1000} cores</small></Item>
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
