// The workspace: what it is, its members and invitations.
import { LogOut, Pencil, Plus, Trash2, UserPlus } from "lucide-react";
import { useCallback, useState } from "react";
import { accounts, type Code, type Invitation, type Member, type Role, type WorkspaceDetail } from "../calls/accounts.ts";
import { ago, moment, until } from "../format.ts";
import { useAct, useLoad, useNow } from "../hooks.ts";
import { Confirm, Failure, Field, Modal, Skeleton } from "../parts.tsx";
import { useMay, useSession } from "../session.ts";
import { DialogForm, Shown } from "./form.tsx";
import { AdminPage, Fact } from "./shell.tsx";

const roles: { id: Role; name: string; text: string }[] = [
	{ id: "owner", name: "Owner", text: "everything, also ending the workspace" },
	{ id: "admin", name: "Admin", text: "members, images, settings, audit log" },
	{ id: "member", name: "Member", text: "creates and uses sandboxes" },
	{ id: "viewer", name: "Viewer", text: "looks, changes nothing" },
];

export default function WorkspacePage() {
	const { me } = useSession();
	const may = useMay();
	const { data, error, reload } = useLoad(useCallback((signal: AbortSignal) => accounts.workspace(me.workspace_id, signal), [me.workspace_id]));
	const [asking, setAsking] = useState(false);
	const create = may("account:write") && <button type="button" className="button" onClick={() => setAsking(true)}><Plus size={16} aria-hidden="true" />New workspace</button>;
	return (
		<AdminPage title="Workspace" actions={create}>
			{error && <Failure text={error} retry={reload} />}
			{!data ? !error && <Skeleton label="Loading the workspace" /> : (
				<>
					<Details workspace={data} reload={reload} />
					<Members workspace={data} reload={reload} />
					{may("members:write") && <Invitations workspace={data} />}
				</>
			)}
			<Modal open={asking} onClose={() => setAsking(false)} title="Create a workspace"><Create onClose={() => setAsking(false)} /></Modal>
		</AdminPage>
	);
}

const scans = { off: "not scanned", warn: "scanned; findings are noted", block: "scanned; code with findings does not run" };

function Details({ workspace: w, reload }: { workspace: WorkspaceDetail; reload: () => void }) {
	const may = useMay();
	const { reenter, say } = useSession();
	const [asking, setAsking] = useState<"edit" | "delete" | null>(null);
	const close = () => setAsking(null);
	return (
		<section className="card">
			<h2>{w.name}<span className="grow" />
				<span className="buttons">
					{may("workspaces:write") && <button type="button" className="button small" onClick={() => setAsking("edit")}><Pencil size={13} aria-hidden="true" />Change…</button>}
					{may("workspaces:delete") && <button type="button" className="button small danger" onClick={() => setAsking("delete")}><Trash2 size={14} aria-hidden="true" />Delete…</button>}
				</span>
			</h2>
			<dl className="columns">
				<Fact name="Slug"><span className="mono">{w.slug}</span></Fact>
				<Fact name="Id"><span className="mono">{w.id}</span></Fact>
				<Fact name="Description">{w.description || "–"}</Fact>
				<Fact name="Created">{moment(w.created_at)}</Fact>
				<Fact name="URLs">{w.url_access === "key" ? "management routes need a key or token" : "each sandbox decides"}</Fact>
				<Fact name="Code">{scans[w.code_scan]}</Fact>
				<Fact name="Audit log">{w.audit_output ? "with the beginning of outputs" : "without outputs"}</Fact>
			</dl>
			<Modal open={asking === "edit"} onClose={close} title={`Change ${w.name}`}><Edit workspace={w} onClose={close} done={reload} /></Modal>
			<Confirm open={asking === "delete"} onClose={close} title={`Delete ${w.name}?`} text="Nobody can use it any more at once. Its sandboxes and snapshots end, and its images, registries and tokens are gone for good." action="Delete the workspace" run={async (signal) => { await accounts.deleteWorkspace(w.id, signal); say(`${w.name} is deleted`); await reenter(); }} />
		</section>
	);
}

function Edit({ workspace: w, onClose, done }: { workspace: WorkspaceDetail; onClose: () => void; done: () => void }) {
	const [form, setForm] = useState({ name: w.name, slug: w.slug, description: w.description, url_access: w.url_access, code_scan: w.code_scan, audit_output: w.audit_output });
	const set = (change: Partial<typeof form>) => setForm((was) => ({ ...was, ...change }));
	return (
		<DialogForm action="Save" onClose={onClose} ready={Boolean(form.name.trim())} run={async (signal) => { await accounts.updateWorkspace(w.id, form, signal); done(); onClose(); }}>
			{(fault) => (
				<>
					<Field label="Name" error={fault("name")}>{(p) => <input {...p} value={form.name} onChange={(e) => set({ name: e.target.value })} autoFocus autoComplete="off" />}</Field>
					<Field label="Slug" hint="Names the workspace in references, as in @slug/snapshot." error={fault("slug")}>{(p) => <input {...p} className="mono" value={form.slug} onChange={(e) => set({ slug: e.target.value })} autoComplete="off" spellCheck={false} />}</Field>
					<Field label="Description" error={fault("description")}>{(p) => <input {...p} value={form.description} onChange={(e) => set({ description: e.target.value })} autoComplete="off" />}</Field>
					<Field label="Management routes on the URLs of sandboxes" error={fault("url_access")}>{(p) => <select {...p} value={form.url_access} onChange={(e) => set({ url_access: e.target.value as typeof form.url_access })}><option value="open">each sandbox decides</option><option value="key">need a key or an API token</option></select>}</Field>
					<Field label="Code before it runs" error={fault("code_scan")}>{(p) => <select {...p} value={form.code_scan} onChange={(e) => set({ code_scan: e.target.value as typeof form.code_scan })}>{Object.entries(scans).map(([id, text]) => <option key={id} value={id}>{text}</option>)}</select>}</Field>
					<label className="checkbox"><input type="checkbox" checked={form.audit_output} onChange={(e) => set({ audit_output: e.target.checked })} /><span>Outputs in the audit log<small>The first 4096 bytes of each command's output, without known secrets.</small></span></label>
				</>
			)}
		</DialogForm>
	);
}

function Create({ onClose }: { onClose: () => void }) {
	const { choose } = useSession();
	const [name, setName] = useState("");
	const [description, setDescription] = useState("");
	return (
		<DialogForm action="Create" onClose={onClose} ready={Boolean(name.trim())} run={async (signal) => choose((await accounts.createWorkspace({ name: name.trim(), description: description.trim() }, signal)).id)}>
			{(fault) => (
				<>
					<Field label="Name" error={fault("name", "slug")}>{(p) => <input {...p} value={name} onChange={(e) => setName(e.target.value)} autoFocus autoComplete="off" />}</Field>
					<Field label="Description" error={fault("description")}>{(p) => <input {...p} value={description} onChange={(e) => setDescription(e.target.value)} autoComplete="off" />}</Field>
				</>
			)}
		</DialogForm>
	);
}

function Members({ workspace, reload }: { workspace: WorkspaceDetail; reload: () => void }) {
	const may = useMay();
	const [asking, setAsking] = useState(false);
	const list = workspace.members ?? [];
	return (
		<section className="card">
			<h2>Members<small className="muted count">{list.length}</small><span className="grow" />{may("members:write") && <span className="buttons"><button type="button" className="button small" onClick={() => setAsking(true)}><UserPlus size={14} aria-hidden="true" />Add…</button></span>}</h2>
			<ul className="rows" aria-label="Members">{list.map((m) => <Row key={m.user_id} workspace={workspace} member={m} reload={reload} />)}</ul>
			<Modal open={asking} onClose={() => setAsking(false)} title="Add a member"><Add workspace={workspace} onClose={() => setAsking(false)} done={reload} /></Modal>
		</section>
	);
}

function Row({ workspace, member: m, reload }: { workspace: WorkspaceDetail; member: Member; reload: () => void }) {
	const { me, reenter, say } = useSession();
	const may = useMay();
	const now = useNow(30_000);
	const { act, busy } = useAct();
	const [asking, setAsking] = useState(false);
	const self = m.user_id === me.user_id;
	// Only owners change owners.
	const mayChange = may("members:write") && (m.role !== "owner" || me.role === "owner");
	return (
		<li>
			<span className="avatar round" aria-hidden="true">{m.name.slice(0, 1).toUpperCase()}</span>
			<div className="row-main">
				<p><b className="clip">{m.name}</b>{self && <span className="chip">you</span>}</p>
				<p className="facts">{m.email && <span>{m.email}</span>}<span title={moment(m.created_at)}>joined {ago(m.created_at, now)}</span></p>
			</div>
			<div className="row-actions">
				{mayChange ? (
					<select className="role" aria-label={`Role of ${m.name}`} value={m.role} disabled={busy} onChange={(e) => { const role = e.target.value as Role; void act(async () => { await accounts.setRole(workspace.id, m.user_id, role); if (self) await reenter(); else reload(); }, `${m.name} is ${role} now`); }}>
						{roles.filter((r) => r.id !== "owner" || me.role === "owner").map((r) => <option key={r.id} value={r.id}>{r.name}</option>)}
					</select>
				) : <span className="muted">{m.role}</span>}
				{self ? <button type="button" className="button small" onClick={() => setAsking(true)}><LogOut size={13} aria-hidden="true" />Leave</button>
					: mayChange && <button type="button" className="icon-button small" aria-label={`Remove ${m.name}`} title="Remove" onClick={() => setAsking(true)}><Trash2 size={14} /></button>}
			</div>
			<Confirm
				open={asking} onClose={() => setAsking(false)} title={self ? `Leave ${workspace.name}?` : `Remove ${m.name}?`} action={self ? "Leave" : "Remove"}
				text={self ? "You lose access at once. An owner or admin can add you again." : `${m.name} loses access to ${workspace.name} at once, by sessions and tokens. Sandboxes that ${m.name} has made stay.`}
				run={async (signal) => { await accounts.removeMember(workspace.id, m.user_id, signal); if (self) await reenter(); else { reload(); say(`${m.name} is removed`); } }}
			/>
		</li>
	);
}

function RoleField({ value, onChange, error }: { value: Role; onChange: (role: Role) => void; error: string | undefined }) {
	const { me } = useSession();
	return <Field label="Role" error={error}>{(p) => <select {...p} value={value} onChange={(e) => onChange(e.target.value as Role)}>{roles.filter((r) => r.id !== "owner" || me.role === "owner").map((r) => <option key={r.id} value={r.id}>{r.name}: {r.text}</option>)}</select>}</Field>;
}

function Add({ workspace, onClose, done }: { workspace: WorkspaceDetail; onClose: () => void; done: () => void }) {
	const { say } = useSession();
	const [who, setWho] = useState("");
	const [role, setRole] = useState<Role>("member");
	const [invited, setInvited] = useState<Code | null>(null);
	if (invited) return <Shown label="Code of the invitation" text={invited.code} lead={<>Pass this code on to {invited.email}, who signs in here with “Use a code” until {moment(invited.expires_at)}.</>} onClose={onClose} />;
	return (
		<DialogForm
			action="Add" onClose={onClose} ready={Boolean(who.trim())}
			run={async (signal) => {
				const text = who.trim();
				const { member, invitation } = await accounts.addMember(workspace.id, { ...(text.includes("@") ? { email: text } : { name: text }), role }, signal);
				done();
				if (invitation) return setInvited(invitation);
				say(`${member?.name ?? text} is ${role} now`);
				onClose();
			}}
		>
			{(fault) => (
				<>
					<Field label="Name or e-mail address" hint="An address that no user has is invited by a code." error={fault("email", "name")}>{(p) => <input {...p} value={who} onChange={(e) => setWho(e.target.value)} autoFocus autoComplete="off" autoCapitalize="none" spellCheck={false} />}</Field>
					<RoleField value={role} onChange={setRole} error={fault("role")} />
				</>
			)}
		</DialogForm>
	);
}

function Invitations({ workspace }: { workspace: WorkspaceDetail }) {
	// The workspace is read again when a member is added, and so are its invitations.
	const { data, error, reload } = useLoad(useCallback((signal: AbortSignal) => accounts.invitations(workspace.id, signal), [workspace]));
	if (data?.length === 0 && !error) return null;
	return (
		<section className="card">
			<h2>Open invitations</h2>
			{error && <Failure text={error} retry={reload} />}
			{!data ? !error && <Skeleton label="Loading the invitations" rows={1} /> : <ul className="rows" aria-label="Invitations">{data.map((i) => <Invited key={i.id} workspace={workspace} invitation={i} reload={reload} />)}</ul>}
		</section>
	);
}

function Invited({ workspace, invitation: i, reload }: { workspace: WorkspaceDetail; invitation: Invitation; reload: () => void }) {
	const now = useNow(30_000);
	const [asking, setAsking] = useState(false);
	return (
		<li>
			<div className="row-main">
				<p><b className="clip">{i.email}</b><span className="chip">{i.role}</span></p>
				<p className="facts"><span title={moment(i.expires_at)}>works for another {until(i.expires_at, now)}</span></p>
			</div>
			<div className="row-actions"><button type="button" className="button small" aria-label={`Withdraw the invitation of ${i.email}`} onClick={() => setAsking(true)}>Withdraw</button></div>
			<Confirm open={asking} onClose={() => setAsking(false)} title={`Withdraw the invitation of ${i.email}?`} text="Its code stops working at once." action="Withdraw" run={async (signal) => { await accounts.withdraw(workspace.id, i.id, signal); reload(); }} />
		</li>
	);
}
