// How the workspace signs in to container registries. Passwords go in, and never come out.
import { Pencil, Plus, Trash2, Warehouse } from "lucide-react";
import { useState } from "react";
import { accounts, type Registry } from "../calls/accounts.ts";
import { ago, moment } from "../format.ts";
import { useAct, useLoad, useNow } from "../hooks.ts";
import { Confirm, Empty, Failure, Field, Modal, Skeleton } from "../parts.tsx";
import { useMay, useSession } from "../session.ts";
import { DialogForm } from "./form.tsx";
import { AdminPage } from "./shell.tsx";

export default function Registries() {
	const may = useMay();
	const { data, error, reload } = useLoad(accounts.registries);
	const [asking, setAsking] = useState(false);
	const add = may("images:write") && <button type="button" className="button primary" onClick={() => setAsking(true)}><Plus size={16} aria-hidden="true" />Add a registry</button>;
	return (
		<AdminPage title="Registries" actions={add}>
			{error && <Failure text={error} retry={reload} />}
			{!data ? !error && <Skeleton label="Loading the registries" /> : data.length === 0 ? (
				<Empty icon={<Warehouse size={22} />} title="No registries" text={add ? "Public images need none. Add a registry with a name and a password to pull private images from it, and to push images that you build." : "Public images need none. An owner or admin of the workspace adds a registry for private images."}>{add}</Empty>
			) : (
				<section className="card">
					<h2>Registries</h2>
					<p className="muted lead">Images of these hosts are pulled and pushed with the name and password of the registry.</p>
					<ul className="rows" aria-label="Registries">{data.map((r) => <Row key={r.id} registry={r} reload={reload} />)}</ul>
				</section>
			)}
			<Modal open={asking} onClose={() => setAsking(false)} title="Add a registry"><Edit onClose={() => setAsking(false)} done={reload} /></Modal>
		</AdminPage>
	);
}

function Row({ registry: r, reload }: { registry: Registry; reload: () => void }) {
	const may = useMay();
	const now = useNow(30_000);
	const { say } = useSession();
	const { act, busy } = useAct();
	const [asking, setAsking] = useState<"edit" | "remove" | null>(null);
	const close = () => setAsking(null);
	return (
		<li>
			<div className="row-main">
				<p><b className="clip">{r.name}</b><span className="state" data-tone={r.enabled ? "good" : "quiet"}>{r.enabled ? "in use" : "not used"}</span></p>
				<p className="facts"><span className="mono">{r.server}</span><span>as {r.username}</span>{r.email && <span>{r.email}</span>}<span title={moment(r.updated_at)}>changed {ago(r.updated_at, now)}</span></p>
			</div>
			{may("images:write") && (
				<div className="row-actions">
					<button type="button" role="switch" aria-checked={r.enabled} aria-label={`Use ${r.name}`} className="switch" disabled={busy} onClick={() => void act(async () => { await accounts.updateRegistry(r.id, { enabled: !r.enabled }); reload(); })}><i /></button>
					<button type="button" className="button small" aria-label={`Change ${r.name}`} onClick={() => setAsking("edit")}><Pencil size={13} aria-hidden="true" />Change…</button>
					<button type="button" className="icon-button small" aria-label={`Remove ${r.name}`} title="Remove" onClick={() => setAsking("remove")}><Trash2 size={14} /></button>
				</div>
			)}
			<Modal open={asking === "edit"} onClose={close} title={`Change ${r.name}`}><Edit registry={r} onClose={close} done={reload} /></Modal>
			<Confirm open={asking === "remove"} onClose={close} title={`Remove ${r.name}?`} text="Its password is erased. Images that were pulled with it stay." action="Remove" run={async (signal) => { await accounts.deleteRegistry(r.id, signal); reload(); say(`${r.name} is removed`); }} />
		</li>
	);
}

function Edit({ registry, onClose, done }: { registry?: Registry; onClose: () => void; done: () => void }) {
	const { say } = useSession();
	const [form, setForm] = useState({ name: registry?.name ?? "", server: registry?.server ?? "", username: registry?.username ?? "", password: "" });
	const [verify, setVerify] = useState(true);
	const set = (change: Partial<typeof form>) => setForm((was) => ({ ...was, ...change }));
	return (
		<DialogForm
			action={registry ? "Change" : "Add"} onClose={onClose}
			ready={Boolean(form.name.trim() && form.server.trim() && form.username.trim() && (registry || form.password))}
			run={async (signal) => {
				const { password, ...rest } = form;
				if (registry) await accounts.updateRegistry(registry.id, { ...rest, ...(password ? { password } : {}), verify }, signal);
				else await accounts.createRegistry({ ...form, verify }, signal);
				done();
				say(`${form.name} is ${registry ? "changed" : "added"}`);
				onClose();
			}}
		>
			{(fault) => (
				<>
					<Field label="Name" error={fault("name")}>{(p) => <input {...p} value={form.name} onChange={(e) => set({ name: e.target.value })} autoFocus autoComplete="off" spellCheck={false} />}</Field>
					<Field label="Server" hint="As references of its images begin: ghcr.io, or registry.example.com:5000." error={fault("server")}>{(p) => <input {...p} className="mono" value={form.server} onChange={(e) => set({ server: e.target.value })} placeholder="ghcr.io" autoComplete="off" spellCheck={false} />}</Field>
					<Field label="User name" error={fault("username")}>{(p) => <input {...p} value={form.username} onChange={(e) => set({ username: e.target.value })} autoComplete="off" spellCheck={false} />}</Field>
					<Field label="Password or token" hint={registry ? "Empty: the one of now stays." : "It is stored encrypted, and never shown."} error={fault("password")}>{(p) => <input {...p} type="password" value={form.password} onChange={(e) => set({ password: e.target.value })} autoComplete="new-password" />}</Field>
					<label className="checkbox"><input type="checkbox" checked={verify} onChange={(e) => setVerify(e.target.checked)} /><span>Ask the registry first<small>Nothing is kept when it refuses the name and password. It may take 10 seconds.</small></span></label>
				</>
			)}
		</DialogForm>
	);
}
