// The commands of a sandbox that outlive their request, and their output as it comes.
import "../styles/box.css";
import { RefreshCw, Square, SquareChevronRight } from "lucide-react";
import { type FormEvent, useCallback, useEffect, useRef, useState } from "react";
import { message } from "../api.ts";
import { bestShell, box, type Execution } from "../calls/box.ts";
import { ago, hasEnded, moment, span, type Tone } from "../format.ts";
import { useAct, useLoad, useNow } from "../hooks.ts";
import type { TabProps } from "../pages/sandbox.tsx";
import { Empty, Failure, Skeleton } from "../parts.tsx";
import { useSession } from "../session.ts";

const tones: Record<Execution["state"], Tone> = { queued: "busy", running: "busy", completed: "good", failed: "bad", timeout: "bad", cancelled: "quiet" };
const lasts = (e: Execution) => e.state === "queued" || e.state === "running";
/** kept is how much of an output is shown, in characters: the end of it. */
const kept = 400_000;

const words = (e: Execution) => (e.tty && e.command?.includes(bestShell) ? "a shell in a terminal" : (e.command ?? []).join(" ").replace(/^\/bin\/(ba)?sh -c /, ""));

function State({ e }: { e: Execution }) {
	return <span className="state" data-tone={tones[e.state]}>{e.cancelling && lasts(e) ? "ending" : e.state}{e.exit_code ? ` · ${e.exit_code}` : ""}</span>;
}

export default function Executions({ sb, events }: TabProps) {
	const { mayWrite } = useSession();
	const last = events[0]?.seq; // an event may be the end of a command
	const { data, error, reload } = useLoad(useCallback((signal: AbortSignal) => (void last, box.executions(sb.id, signal)), [sb.id, last]));
	const [chosen, setChosen] = useState("");
	const now = useNow();
	const current = data?.find((e) => e.id === chosen) ?? data?.[0];
	return (
		<div className="split">
			<section className="split-side" aria-label="Commands">
				{mayWrite && !hasEnded(sb.state) && <Start id={sb.id} done={(e) => { setChosen(e.id); reload(); }} />}
				<h2 className="split-head">Commands <span className="grow" /><button type="button" className="icon-button small" aria-label="Read again" title="Read again" onClick={reload}><RefreshCw size={14} /></button></h2>
				{error && <Failure text={error} retry={reload} />}
				{!data ? !error && <Skeleton label="Loading the commands" /> : (
					<ul className="picks">
						{data.map((e) => (
							<li key={e.id}>
								<button type="button" className="pick" aria-current={e.id === current?.id ? "true" : undefined} onClick={() => setChosen(e.id)}>
									<span className="mono clip" title={words(e)}>{words(e)}</span>
									<State e={e} />
									<small className="muted" title={moment(e.created_at)}>{e.kind} · {ago(e.created_at, now)}</small>
								</button>
							</li>
						))}
					</ul>
				)}
			</section>
			<section className="split-main" aria-label="Output">
				{current ? <Output key={current.id} first={current} ended={reload} mayCancel={mayWrite} />
					: data && <Empty icon={<SquareChevronRight size={22} />} title="No commands yet" text="Commands that were started in the background, here or by a program, are listed with their output for 24 hours after their end." />}
			</section>
		</div>
	);
}

function Start({ id, done }: { id: string; done: (e: Execution) => void }) {
	const [text, setText] = useState("");
	const { act, busy } = useAct();
	const submit = (e: FormEvent) => {
		e.preventDefault();
		void act(async () => {
			done(await box.start(id, text));
			setText("");
		});
	};
	return (
		<form className="start" onSubmit={submit}>
			<input className="mono" aria-label="Command" placeholder="Run a command, such as make test" value={text} spellCheck={false} autoComplete="off" onChange={(e) => setText(e.target.value)} />
			<button type="submit" className="button primary" disabled={busy || !text.trim()}>Run</button>
		</form>
	);
}

/** useOutput returns the output of streams as it comes, the end of it when it is long, and whether all has come. */
function useOutput(streams: string) {
	const [text, setText] = useState("");
	const [done, setDone] = useState(false);
	const [error, setError] = useState("");
	useEffect(() => {
		const reading = new AbortController();
		const follow = async (stream: string) => {
			const reader = (await box.output(stream, reading.signal)).body?.pipeThrough(new TextDecoderStream()).getReader();
			for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
				const more = part.value;
				setText((was) => (was + more).slice(-kept));
			}
		};
		Promise.all(streams.split(" ").filter(Boolean).map(follow)).then(
			() => setDone(true),
			(err: unknown) => !reading.signal.aborted && setError(message(err)),
		);
		return () => reading.abort();
	}, [streams]);
	return { text, done, error };
}

function Output({ first, ended, mayCancel }: { first: Execution; ended: () => void; mayCancel: boolean }) {
	const [now, setNow] = useState(first);
	const streams = [...new Set([first.stdout.stream_id, first.stderr.stream_id])].filter(Boolean).join(" ");
	const { text, done, error } = useOutput(streams);
	const { act, busy } = useAct();
	const place = useRef<HTMLPreElement>(null);
	const [stuck, setStuck] = useState(true); // to the end, unless the reader has scrolled up
	useEffect(() => {
		if (stuck && place.current) place.current.scrollTop = place.current.scrollHeight;
	}, [text, stuck]);
	const open = lasts(now);
	useEffect(() => {
		if (!done || !open) return;
		const reading = new AbortController();
		box.execution(first.id, reading.signal).then((e) => {
			setNow(e);
			ended();
		}).catch(() => undefined); // the list says what is wrong
		return () => reading.abort();
	}, [done, open, first.id, ended]);
	return (
		<>
			<header className="file-head">
				<span className="mono clip" title={words(now)}>{words(now)}</span>
				<State e={now} />
				{now.ended_at && <small className="muted">{span(now.duration_ms / 1000)}</small>}
				<span className="grow" />
				{mayCancel && open && <button type="button" className="button small" disabled={busy || now.cancelling} onClick={() => void act(async () => setNow(await box.cancel(first.id)))}><Square size={13} aria-hidden="true" />End</button>}
			</header>
			{now.error && <Failure text={now.error} />}
			{error && <Failure text={error} />}
			<pre className="output" ref={place} tabIndex={0} aria-label="Output of the command" onScroll={(e) => setStuck(e.currentTarget.scrollHeight - e.currentTarget.scrollTop - e.currentTarget.clientHeight < 24)}>
				{text || (done ? <span className="muted">The command wrote nothing.</span> : !streams ? <span className="muted">Its output is not stored.</span> : <span className="muted">No output yet.</span>)}
			</pre>
		</>
	);
}
