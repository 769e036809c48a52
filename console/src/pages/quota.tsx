// What the workspace may use, and what it uses.
import { Pencil, RefreshCw } from "lucide-react";
import { useCallback, useState } from "react";
import { accounts, type Quota, type QuotaReport } from "../calls/accounts.ts";
import { bytes, cores } from "../format.ts";
import { useLoad } from "../hooks.ts";
import { Failure, Field, Modal, Skeleton } from "../parts.tsx";
import { useMay, useSession } from "../session.ts";
import { DialogForm } from "./form.tsx";
import { AdminPage, Bar, Fact } from "./shell.tsx";

const units: Record<string, number> = { "": 1, m: 0.001, k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50 };

/** amount reads a quantity such as 1500m or 2Gi. */
function amount(text: string | undefined): number {
	const [, n = "0", unit = ""] = /^([\d.]+)([A-Za-z]*)$/.exec(text ?? "") ?? [];
	return Number(n) * (units[unit] ?? 1);
}

const core = (n: number) => cores(Math.round(n * 1000));
const count = (n: number) => n.toLocaleString();

export default function QuotaPage() {
	const { me, workspaces } = useSession();
	const may = useMay();
	const { data, error, reload, set } = useLoad(useCallback((signal: AbortSignal) => accounts.quota(me.workspace_id, signal), [me.workspace_id]));
	const [asking, setAsking] = useState(false);
	const name = workspaces.find((w) => w.id === me.workspace_id)?.name ?? "the workspace";
	return (
		<AdminPage
			title="Quota"
			actions={(
				<>
					<button type="button" className="button" onClick={reload}><RefreshCw size={14} aria-hidden="true" />Measure again</button>
					{may("admin") && data && <button type="button" className="button" onClick={() => setAsking(true)}><Pencil size={14} aria-hidden="true" />Change…</button>}
				</>
			)}
		>
			{error && <Failure text={error} retry={reload} />}
			{!data ? !error && <Skeleton label="Loading the quota" /> : <Report report={data} />}
			{data && <Modal open={asking} onClose={() => setAsking(false)} title={`Change the quota of ${name}`}><Edit report={data} onClose={() => setAsking(false)} done={set} /></Modal>}
		</AdminPage>
	);
}

function Report({ report: { limits, set, used } }: { report: QuotaReport }) {
	const own = (key: keyof Quota) => set[key] !== undefined;
	const disk = used.disk_by;
	const parts = [
		["Sandboxes", disk.sandbox_bytes], ["Paused sandboxes", disk.paused_bytes], ["Checkpoints", disk.checkpoint_bytes], ["Snapshots", disk.snapshot_bytes], ["Images", disk.image_bytes],
		["Build cache", disk.build_cache_bytes], ["Builds under way", disk.build_bytes], ["Uploads", disk.upload_bytes], ["Outputs", disk.stream_bytes],
	] as const;
	return (
		<>
			<section className="card">
				<h2>Used of the quota</h2>
				<p className="muted lead">Memory, CPU and disk are the limits of what runs, not what it happens to use. Paused sandboxes count only for the disk.</p>
				<Bar name="Sandboxes" used={used.sandboxes} limit={limits.sandboxes ?? 0} write={count} own={own("sandboxes")} />
				<Bar name="Memory" used={amount(used.memory)} limit={amount(limits.memory)} write={bytes} own={own("memory")} />
				<Bar name="CPU" used={amount(used.cpu)} limit={amount(limits.cpu)} write={core} own={own("cpu")} />
				<Bar name="Disk" used={amount(used.disk)} limit={amount(limits.disk)} write={bytes} own={own("disk")} />
			</section>
			<section className="card">
				<h2>On the disk</h2>
				<dl className="columns">{parts.filter(([, n]) => n > 0).map(([name, n]) => <Fact key={name} name={name}>{bytes(n)}</Fact>)}</dl>
				{parts.every(([, n]) => n === 0) && <p className="muted">Nothing is stored.</p>}
			</section>
			<section className="card">
				<h2>Other limits</h2>
				<dl className="columns">
					<Fact name="Creates">{limits.creates_per_minute ? `${count(limits.creates_per_minute)} a minute` : "no limit"}</Fact>
					<Fact name="One sandbox">{[limits.sandbox_memory && `${limits.sandbox_memory} of memory`, limits.sandbox_cpu && core(amount(limits.sandbox_cpu)), limits.sandbox_disk && `${limits.sandbox_disk} of disk`].filter(Boolean).join(", ") || "the server's limits"}</Fact>
				</dl>
			</section>
		</>
	);
}

const fieldNames: { id: keyof Quota; name: string; hint?: string; number?: boolean }[] = [
	{ id: "sandboxes", name: "Sandboxes", number: true }, { id: "creates_per_minute", name: "Creates per minute", number: true },
	{ id: "memory", name: "Memory" }, { id: "cpu", name: "CPU" }, { id: "disk", name: "Disk" },
	{ id: "sandbox_memory", name: "Memory of one sandbox" }, { id: "sandbox_cpu", name: "CPU of one sandbox" }, { id: "sandbox_disk", name: "Disk of one sandbox" },
];

function Edit({ report: { workspace_id, set, limits }, onClose, done }: { report: QuotaReport; onClose: () => void; done: (r: QuotaReport) => void }) {
	const [form, setForm] = useState<Record<string, string>>(() => Object.fromEntries(fieldNames.map(({ id }) => [id, set[id] === undefined ? "" : String(set[id])])));
	return (
		<DialogForm
			action="Save" onClose={onClose}
			run={async (signal) => {
				const quota: Record<string, string | number> = {};
				for (const { id, name, number } of fieldNames) {
					const text = form[id]?.trim();
					if (!text) continue;
					if (number && !/^\d+$/.test(text)) throw new Error(`${name} is a whole number.`);
					quota[id] = number ? Number(text) : text;
				}
				done(await accounts.setQuota(workspace_id, quota, signal));
				onClose();
			}}
		>
			{(fault) => (
				<>
					<p className="muted">Empty: the server's default. 0: no limit. What exists stays.</p>
					<div className="pair">
						{fieldNames.map(({ id, name }) => <Field key={id} label={name} error={fault(id)}>{(p) => <input {...p} value={form[id] ?? ""} placeholder={String(limits[id] ?? "no limit")} onChange={(e) => setForm((was) => ({ ...was, [id]: e.target.value }))} autoComplete="off" spellCheck={false} />}</Field>)}
					</div>
				</>
			)}
		</DialogForm>
	);
}
