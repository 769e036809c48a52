// What differs between the files of two snapshots.
import { FileDiff } from "lucide-react";
import { type FormEvent, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { message } from "../api.ts";
import { type Difference, differences, named, type Snapshot, snapshots } from "../calls/images.ts";
import { bytes, type Tone } from "../format.ts";
import { useLoad } from "../hooks.ts";
import { Empty, Failure, Field } from "../parts.tsx";

/** most is how many names are shown of each kind. */
const most = 500;
/** namesMost is how many names are read of both snapshots together, so that they fit into the memory of the browser. */
const namesMost = 300_000;
const tones: Record<Difference["kind"], Tone> = { added: "good", removed: "bad", changed: "warn" };
const kinds = ["added", "changed", "removed"] as const;

/** change says what is different about a name that is in both. */
function change({ before: a, after: b }: Difference): string {
	if (!a || !b) return bytes((a ?? b)?.size_bytes ?? 0);
	if (a.type !== b.type) return `${a.type} → ${b.type}`;
	const said = [];
	if (a.size_bytes !== b.size_bytes) said.push(`${bytes(a.size_bytes)} → ${bytes(b.size_bytes)}`);
	if (a.mode !== b.mode) said.push(`mode ${a.mode} → ${b.mode}`);
	if (a.uid !== b.uid || a.gid !== b.gid) said.push(`owner ${a.uid}:${a.gid} → ${b.uid}:${b.gid}`);
	if (a.target !== b.target) said.push(`→ ${b.target}`);
	return said.join(", ") || `${bytes(b.size_bytes)}, written anew`;
}

export function Compare({ snapshot }: { snapshot: Snapshot }) {
	const { data } = useLoad(snapshots.list);
	const others = useMemo(() => (data ?? []).filter((s) => s.id !== snapshot.id), [data, snapshot.id]);
	const [chosen, setChosen] = useState("");
	const [dir, setDir] = useState("/");
	const [read, setRead] = useState(0);
	const [found, setFound] = useState<Difference[] | null>(null);
	const [error, setError] = useState("");
	const [busy, setBusy] = useState(false);
	const reading = useRef<AbortController>(null);
	useEffect(() => () => reading.current?.abort(), []);
	const other = others.find((s) => s.id === chosen) ?? others.find((s) => s.id === snapshot.parent_id) ?? others[0];
	const compare = useCallback(async (a: Snapshot, b: Snapshot) => {
		reading.current?.abort();
		const now = (reading.current = new AbortController());
		let names = 0;
		const count = (n: number) => {
			setRead((names += n));
			if (names > namesMost) throw new Error(`The two have more than ${namesMost.toLocaleString()} names below ${dir.trim() || "/"}, which is too much for this page. Name a directory with fewer.`);
		};
		setBusy(true);
		setRead(0);
		setError("");
		setFound(null);
		try {
			const [before, after] = await Promise.all([a, b].map((s) => snapshots.files(s.id, dir.trim() || "/", count, now.signal)));
			if (before && after) setFound(differences(before, after));
		} catch (err) {
			if (now.signal.aborted) return;
			now.abort(); // the reading of the other one
			setError(message(err));
		}
		setBusy(false);
	}, [dir]);
	if (!other) return null;
	const submit = (e: FormEvent) => {
		e.preventDefault();
		void compare(other, snapshot);
	};
	return (
		<section className="card">
			<h2>Compare files</h2>
			<form className="inline-form compare" onSubmit={submit}>
				<Field label="What has changed since">
					{(p) => <select {...p} value={other.id} onChange={(e) => setChosen(e.target.value)}>{others.map((s) => <option key={s.id} value={s.id}>{named(s)}{s.tag ? "" : ` (${s.id.slice(0, 8)})`}{s.id === snapshot.parent_id ? ", its parent" : ""}</option>)}</select>}
				</Field>
				<Field label="Below the directory">{(p) => <input {...p} className="mono" value={dir} onChange={(e) => setDir(e.target.value)} spellCheck={false} autoComplete="off" />}</Field>
				<button type="submit" className="button" disabled={busy}>{busy ? "Comparing…" : "Compare"}</button>
			</form>
			{busy && <p role="status" className="muted">{read.toLocaleString()} names read</p>}
			{error && <Failure text={error} />}
			{found && <Differences found={found} />}
		</section>
	);
}

function Differences({ found }: { found: Difference[] }) {
	if (found.length === 0) return <Empty icon={<FileDiff size={22} />} title="Nothing differs" text="Both have the same names there, with the same sizes, times, owners and modes." />;
	return (
		<>
			{kinds.map((kind) => {
				const list = found.filter((d) => d.kind === kind);
				return list.length > 0 && (
					<div key={kind} className="diff">
						<h3><span className="state" data-tone={tones[kind]}>{kind}</span> {list.length.toLocaleString()}</h3>
						<ul aria-label={`Files ${kind}`}>
							{list.slice(0, most).map((d) => <li key={d.path}><span className="mono clip" title={d.path}>{d.path}{(d.after ?? d.before)?.type === "directory" && "/"}</span><small className="muted">{change(d)}</small></li>)}
							{list.length > most && <li className="muted">and {(list.length - most).toLocaleString()} more: name a directory to see them</li>}
						</ul>
					</div>
				);
			})}
			<p className="note">A file with the same size and time counts as unchanged.</p>
		</>
	);
}
