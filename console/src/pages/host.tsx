// The machine of the server, for administrators: what is promised and used, and what is slow.
import { RefreshCw } from "lucide-react";
import { type Host, host, type HostOperation } from "../calls/host.ts";
import { ago, bytes, moment } from "../format.ts";
import { useLoad, useNow } from "../hooks.ts";
import { Failure, Skeleton } from "../parts.tsx";
import { AdminPage, Bar, Fact } from "./shell.tsx";

export default function HostPage() {
	const { data, error, reload } = useLoad(host);
	return (
		<AdminPage title="Host" actions={<button type="button" className="button" onClick={reload}><RefreshCw size={14} aria-hidden="true" />Measure again</button>}>
			{error && <Failure text={error} retry={reload} />}
			{!data ? !error && <Skeleton label="Loading the host" /> : (
				<>
					<Capacity host={data} />
					<Counts host={data} />
					<Operations list={data.operations} />
				</>
			)}
		</AdminPage>
	);
}

function Capacity({ host: { memory, disk, disk_pressure } }: { host: Host }) {
	return (
		<section className="card">
			<h2>Capacity</h2>
			<p className="muted lead">Promised is the sum of the limits of all that runs, which may be more than there is; used is what it takes of it.</p>
			{disk_pressure && <Failure text="Less disk is free than disk.evict_below: the server removes what nothing needs. Free disk, or add some." />}
			<Bar name="Memory promised" used={memory.promised_bytes} limit={memory.promised_max_bytes} write={bytes} note={`The machine has ${bytes(memory.total_bytes)}.`} />
			<Bar name="Memory used by sandboxes" used={memory.used_bytes} limit={memory.total_bytes} write={bytes} note="As of the last measurement of each sandbox." />
			<Bar name="Disk promised" used={disk.promised_bytes} limit={disk.promised_max_bytes} write={bytes} />
			<Bar name="Disk used" used={disk.total_bytes - (disk.free_bytes ?? 0)} limit={disk.total_bytes} write={bytes} note={`${bytes(disk.free_bytes ?? 0)} are free. Sandboxes and builds that are under way have written ${bytes(disk.used_bytes)}.`} />
		</section>
	);
}

const kinds: Record<string, string> = { built_in: "Built-in images", pulled: "Pulled images", built: "Built images", cache: "Build cache" };

function Counts({ host: h }: { host: Host }) {
	const now = useNow(10_000);
	const states = h.sandboxes.filter((s) => s.count > 0);
	const { requests, builds, image_tasks, executions } = h.waiting;
	return (
		<div className="overview flush">
			<section className="card">
				<h2>Server</h2>
				<dl>
					<Fact name="Version">{h.version}</Fact>
					<Fact name="Driver">{h.platform ? `${h.driver} (${h.platform})` : h.driver}</Fact>
					<Fact name="Started" title={moment(h.started_at)}>{ago(h.started_at, now)}</Fact>
					<Fact name="Cores">{h.cores}</Fact>
					<Fact name="Database">{bytes(h.database_bytes)}</Fact>
				</dl>
			</section>
			<section className="card">
				<h2>Sandboxes of all workspaces</h2>
				<dl>
					{states.map((s) => <Fact key={s.state} name={s.state}>{s.count.toLocaleString()}</Fact>)}
					{states.length === 0 && <Fact name="All">none</Fact>}
				</dl>
			</section>
			<section className="card">
				<h2>Pool</h2>
				{h.pool ? (
					<dl>
						<Fact name="Ready">{h.pool.boxes} started boxes</Fact>
						<Fact name="Creates">{h.pool.hits} with a started box, {h.pool.misses} without</Fact>
					</dl>
				) : <p className="muted">There is no pool. With <code>pool.size</code> the server starts boxes before they are asked for.</p>}
			</section>
			<section className="card">
				<h2>Under way</h2>
				<dl>
					<Fact name="Wait for capacity">{requests}</Fact>
					<Fact name="Builds">{builds}</Fact>
					<Fact name="Pulls, installs">{image_tasks}</Fact>
					<Fact name="Commands">{executions}</Fact>
				</dl>
			</section>
			<section className="card">
				<h2>Images</h2>
				<dl>{h.images.map((i) => <Fact key={i.kind} name={kinds[i.kind] ?? i.kind}>{bytes(i.size_bytes)} <small className="muted">in {i.count}</small></Fact>)}</dl>
			</section>
		</div>
	);
}

const names: Record<string, string> = { create: "Create", exec: "Start of a command", image: "Pull of an image", packages: "Install of packages", build: "Build of an image", database: "Write to the database" };
const time = (seconds: number) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : seconds < 60 ? `${seconds.toFixed(1)} s` : `${(seconds / 60).toFixed(1)} min`);

function Operations({ list }: { list: HostOperation[] }) {
	return (
		<section className="card">
			<h2>Operations since the start, the slowest first</h2>
			{list.length === 0 ? <p className="muted">None has ended yet.</p> : (
				<div className="wide-table" role="region" aria-label="Operations" tabIndex={0}>
					<table>
						<thead><tr><th scope="col">Operation</th><th scope="col">Half within</th><th scope="col">19 of 20 within</th><th scope="col">Mean</th><th scope="col">Times</th><th scope="col">Failed</th></tr></thead>
						<tbody>
							{list.map((o) => (
								<tr key={`${o.operation} ${o.phase}`}>
									<th scope="row">{names[o.operation] ?? o.operation}{o.phase && <span className="muted"> · {o.phase}</span>}</th>
									<td>{time(o.p50_seconds)}</td><td>{time(o.p95_seconds)}</td><td>{time(o.mean_seconds)}</td><td>{o.count.toLocaleString()}</td><td className={o.failed ? "bad" : "muted"}>{o.failed}</td>
								</tr>
							))}
						</tbody>
					</table>
				</div>
			)}
		</section>
	);
}
