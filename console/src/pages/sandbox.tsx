import { ArrowLeft, CircleAlert, SquareTerminal } from "lucide-react";
import { Tabs } from "radix-ui";
import { type ComponentType, Suspense, useCallback, useEffect, useState, useSyncExternalStore } from "react";
import { Link, useLocation } from "wouter";
import { SandboxButtons } from "../actions.tsx";
import { ApiError, api, firstPause, listen, longestPause, mayPass, message, newer, type Sandbox, type SandboxEvent } from "../api.ts";
import { PageBoundary } from "../boundary.tsx";
import { hasEnded } from "../format.ts";
import { useCurrentInView, useNow, useTitle } from "../hooks.ts";
import { late } from "../late.ts";
import { type Sample, Use } from "../use.ts";
import { CopyButton, Empty, Skeleton, State } from "../parts.tsx";
import { useSession } from "../session.ts";
import { Overview } from "./overview.tsx";
import { Timeline } from "./timeline.tsx";

export interface TabProps {
	sb: Sandbox;
	events: SandboxEvent[];
	/** What it has used since the page was opened. */
	use: readonly Sample[];
	onChange: (sb: Sandbox) => void;
}

interface Tab {
	id: string;
	name: string;
	Page: ComponentType<TabProps>;
	/** Whether only callers who may use sandboxes have it. */
	write?: boolean;
	/** What the tab is good for only as long as the sandbox has not ended. */
	live?: string;
	/** Which sandboxes have it; all when absent. */
	of?: (sb: Sandbox) => boolean;
	/** Whether the tab scrolls by itself. */
	fill?: boolean;
}

/** hasDesktop reports whether the image of a sandbox has a desktop, which its URL serves. */
const hasDesktop = (sb: Sandbox) => Boolean(sb.url) && /^modbox\/(sandbox|chromium)(:|$)/.test(sb.image);

/** tabs are loaded when they are shown, but for the overview and the events. */
const tabs: Tab[] = [
	{ id: "terminal", name: "Terminal", write: true, live: "A terminal needs", fill: true, Page: late(() => import("../box/terminal/terminals.tsx")) },
	{ id: "notebook", name: "Notebook", write: true, live: "A notebook needs", Page: late(() => import("../box/notebook/notebook.tsx")) },
	{ id: "desktop", name: "Desktop", write: true, live: "A desktop needs", fill: true, of: hasDesktop, Page: late(() => import("../box/desktop.tsx")) },
	{ id: "files", name: "Files", write: true, live: "Files can be read and changed in", fill: true, Page: late(() => import("../box/files.tsx")) },
	{ id: "executions", name: "Commands", fill: true, Page: late(() => import("../box/executions.tsx")) },
	{ id: "ports", name: "Ports", write: true, live: "Ports lead to", Page: late(() => import("../box/ports.tsx")) },
	{ id: "use", name: "Use", live: "Curves are shown of", Page: late(() => import("../box/use.tsx")) },
	{ id: "checkpoints", name: "Checkpoints", Page: late(() => import("../box/history.tsx")) },
];

/** eventsMost is how many events of a sandbox are shown, the newest. */
const eventsMost = 1000;

/** samplesMost is how many measurements of a sandbox are shown: those of ten minutes. */
const samplesMost = 300;

/** useSandbox keeps a sandbox and its events current. */
function useSandbox(id: string) {
	const { store } = useSession();
	const [sb, setSb] = useState<Sandbox | null>(null);
	const [events, setEvents] = useState<SandboxEvent[]>([]);
	const [error, setError] = useState<ApiError | Error | null>(null);
	const [use] = useState(() => new Use(samplesMost));
	const samples = useSyncExternalStore(use.subscribe, () => use.of(id));
	const put = useCallback((now: Sandbox) => {
		setSb((was) => (was && newer(was, now) ? was : now));
		store.put(now);
	}, [store]);
	useEffect(() => {
		const reading = new AbortController();
		let retry: ReturnType<typeof setTimeout> | undefined;
		let pause = firstPause;
		const fail = (err: unknown) => {
			if (reading.signal.aborted) return;
			setError(err instanceof Error ? err : new Error(String(err)));
			if (retry || !mayPass(err)) return;
			// No other event may come that would have it be read.
			retry = setTimeout(() => {
				retry = undefined;
				readAll();
			}, pause);
			pause = Math.min(pause * 2, longestPause);
		};
		const read = () => {
			api.sandbox(id, reading.signal).then((now) => {
				pause = firstPause;
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
			use: use.note,
		}, id);
		readAll();
		return () => {
			reading.abort();
			clearTimeout(retry);
			stop();
		};
	}, [id, put, use]);
	return { sb, events, samples, error, put };
}

export function SandboxPage({ id, tab }: { id: string; tab: string }) {
	const { mayWrite } = useSession();
	const { sb, events, samples, error, put } = useSandbox(id);
	const [, navigate] = useLocation();
	const now = useNow();
	useTitle(sb?.name ?? "Sandbox");
	const row = useCurrentInView<HTMLDivElement>(sb ? tab : "");
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
	const shown = tabs.filter((t) => (mayWrite || !t.write) && (t.of?.(sb) ?? true));
	return (
		<div className="page sandbox-page">
			<header className="page-head">
				<Link href="/" className="icon-button" aria-label="Back to the list"><ArrowLeft size={16} /></Link>
				<div className="title">
					<h1 className="clip">{sb.name}</h1>
					<State state={sb.state} filesOnly={sb.paused_without_memory} />
					<span className="id mono">{sb.id}<CopyButton text={sb.id} label="Copy the id" /></span>
				</div>
				<span className="grow" />
				<SandboxButtons sb={sb} onChange={put} />
			</header>
			{sb.cause && sb.state === "failed" && <p role="alert" className="alert bar"><CircleAlert size={16} aria-hidden="true" /><span><b>{sb.cause.code}</b> · {sb.cause.message}</span></p>}
			<Tabs.Root className="tabs" value={tab} onValueChange={(t) => navigate(`/sandboxes/${id}${t === "overview" ? "" : `/${t}`}`)}>
				<Tabs.List className="tab-list" aria-label="Sandbox" ref={row}>
					<Tabs.Trigger value="overview">Overview</Tabs.Trigger>
					{shown.map((t) => <Tabs.Trigger key={t.id} value={t.id}>{t.name}</Tabs.Trigger>)}
					<Tabs.Trigger value="events">Events<small>{events.length}</small></Tabs.Trigger>
				</Tabs.List>
				<Tabs.Content value="overview" className="tab"><Overview sb={sb} now={now} /></Tabs.Content>
				{shown.map(({ id: t, name, Page, live, fill }) => (
					<Tabs.Content key={t} value={t} className={fill ? "tab fill" : "tab"}>
						{ended && live ? <Empty icon={<SquareTerminal size={22} />} title="The sandbox has ended" text={`${live} a sandbox that has not ended.`} />
							: <PageBoundary at={t}><Suspense fallback={<Skeleton label={`Loading ${name}`} />}><Page sb={sb} events={events} use={samples} onChange={put} /></Suspense></PageBoundary>}
					</Tabs.Content>
				))}
				<Tabs.Content value="events" className="tab"><Timeline events={events} now={now} /></Tabs.Content>
			</Tabs.Root>
		</div>
	);
}

