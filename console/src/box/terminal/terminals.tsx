// The terminals of a sandbox. Their shells are executions: they go on when the page is left, and the page attaches to them again.
import "../../styles/terminal.css";
import { Play, Plus, SquareTerminal, X } from "lucide-react";
import { Tabs } from "radix-ui";
import { useCallback, useEffect, useRef, useState } from "react";
import { api, message, type Sandbox } from "../../api.ts";
import { box, type Execution } from "../../calls/box.ts";
import { useAct } from "../../hooks.ts";
import type { TabProps } from "../../pages/sandbox.tsx";
import { Failure, Skeleton } from "../../parts.tsx";
import { useSession } from "../../session.ts";
import { Session, type Status } from "./session.ts";

/** useShells returns the user's shells that run on a terminal of the sandbox, the oldest first; one is started when there is none. */
function useShells(id: string) {
	const { me } = useSession();
	const [shells, setShells] = useState<Execution[] | null>(null);
	const [error, setError] = useState("");
	const [current, setCurrent] = useState("");
	const starting = useRef(false);
	const start = useCallback(async () => {
		if (starting.current) return;
		starting.current = true;
		try {
			const made = await box.shell(id);
			setShells((was) => [...(was ?? []), made]);
			setCurrent(made.id);
			setError("");
		} catch (err) {
			setError(message(err));
		} finally {
			starting.current = false;
		}
	}, [id]);
	useEffect(() => {
		const reading = new AbortController();
		box.terminals(id, reading.signal).then((all) => {
			const mine = all.filter((e) => e.created_by === me.user_id).reverse();
			setShells((was) => (was?.length ? was : mine));
			setCurrent((was) => was || (mine.at(-1)?.id ?? ""));
			if (mine.length === 0) void start();
		}).catch((err: unknown) => !reading.signal.aborted && setError(message(err)));
		return () => reading.abort();
	}, [id, me.user_id, start]);
	const close = useCallback((shell: Execution) => {
		setShells((was) => {
			const left = (was ?? []).filter((e) => e.id !== shell.id);
			setCurrent((at) => (at === shell.id ? (left.at(-1)?.id ?? "") : at));
			return left;
		});
	}, []);
	return { shells, error, current, setCurrent, start, close };
}

export default function Terminals({ sb, onChange }: TabProps) {
	const { shells, error, current, setCurrent, start, close } = useShells(sb.id);
	const { act } = useAct();
	const list = useRef<HTMLDivElement>(null);
	const leave = useCallback(() => list.current?.querySelector<HTMLElement>('[role="tab"][data-state="active"]')?.focus(), []);
	const end = (shell: Execution, ended: boolean) => {
		close(shell);
		if (!ended) void act(() => box.kill(shell.id));
	};
	if (!shells) return error ? <Failure text={error} retry={() => void start()} /> : <Skeleton label="Starting a shell" />;
	return (
		<Tabs.Root className="terminal-page" value={current} onValueChange={setCurrent} activationMode="manual">
			<div className="shell-tabs" ref={list}>
				<Tabs.List aria-label="Shells" className="shell-list">
					{shells.map((e, i) => <Tabs.Trigger key={e.id} value={e.id}><SquareTerminal size={13} aria-hidden="true" />Shell {i + 1}</Tabs.Trigger>)}
				</Tabs.List>
				<button type="button" className="icon-button small" aria-label="New shell" title="New shell" onClick={() => void start()}><Plus size={15} /></button>
			</div>
			{error && <Failure text={error} retry={() => void start()} />}
			{shells.map((e, i) => (
				<Tabs.Content key={e.id} value={e.id} forceMount tabIndex={-1} className="shell-page">
					<Shell sb={sb} execution={e} name={`Shell ${i + 1}`} shown={e.id === current} leave={leave} start={start} end={end} onChange={onChange} />
				</Tabs.Content>
			))}
			{shells.length === 0 && !error && <div className="shell-none"><p>No shell runs.</p><button type="button" className="button small" onClick={() => void start()}><Plus size={14} aria-hidden="true" />Start a shell</button></div>}
		</Tabs.Root>
	);
}

interface ShellProps {
	sb: Sandbox;
	execution: Execution;
	name: string;
	shown: boolean;
	leave: () => void;
	start: () => Promise<void>;
	end: (e: Execution, ended: boolean) => void;
	onChange: (sb: Sandbox) => void;
}

function Shell({ sb, execution, name, shown, leave, start, end, onChange }: ShellProps) {
	const place = useRef<HTMLDivElement>(null);
	const session = useRef<Session>(null);
	const running = useRef(false);
	const [status, setStatus] = useState<Status>({ name: "connecting" });
	const { act, busy } = useAct();
	const runs = sb.state === "running";
	useEffect(() => {
		if (!place.current) return;
		const made = (session.current = new Session(place.current, { sandbox: sb.id, execution, report: setStatus, mayConnect: () => running.current, leave }));
		return () => made.end();
	}, [sb.id, execution, leave]);
	useEffect(() => {
		running.current = runs;
		if (runs) void session.current?.connect();
	}, [runs]);
	useEffect(() => {
		if (!shown) return;
		session.current?.fit();
		session.current?.focus();
	}, [shown]);
	const paused = sb.state === "paused" && status.name !== "ended";
	return (
		<>
			<div className="shell" ref={place} data-status={status.name} role="group" aria-label={name} />
			<p className="terminal-foot">
				<span role="status">
					{paused ? "The sandbox is paused, and the shell with it."
						: status.name === "connecting" ? "Connecting…"
							: status.name === "open" ? "Connected. The shell goes on when you leave this page."
								: status.name === "lost" ? "The connection is broken; it is being made again. The shell goes on."
									: status.text}
				</span>
				{paused && <button type="button" className="button small" disabled={busy} onClick={() => void act(async () => onChange(await api.resume(sb.id)))}><Play size={14} aria-hidden="true" />Resume</button>}
				{status.name === "ended" && <button type="button" className="button small" onClick={() => { end(execution, true); void start(); }}><Plus size={14} aria-hidden="true" />Start a new shell</button>}
				<span className="grow" />
				<span className="terminal-hint"><kbd>Ctrl Shift ↑</kbd> leaves the terminal</span>
				<button type="button" className="button small" onClick={() => end(execution, status.name === "ended")}><X size={14} aria-hidden="true" />{status.name === "ended" ? "Close" : "End the shell"}</button>
			</p>
		</>
	);
}
