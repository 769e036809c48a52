// The dialog that creates a sandbox, beside the same request as a program.
import { Tabs } from "radix-ui";
import { type FormEvent, useEffect, useMemo, useState } from "react";
import { api, type CreateSandbox, type Sandbox } from "./api.ts";
import { FormError, useFaults } from "./faults.tsx";
import { CopyButton, Field, Fold, FormFoot, Modal, usePending } from "./parts.tsx";
import { arePorts, entries, noPorts, RequestFields, type Requests, RuleFields, type Rules } from "./rules.tsx";
import type { Source } from "./session.ts";
import { languages, snippet } from "./snippets.ts";

interface Form {
	name: string;
	image: string;
	snapshot: string;
	memory: string;
	cpu: string;
	ttl: string;
	idle: string;
	onIdle: NonNullable<NonNullable<CreateSandbox["timeouts"]>["on_idle"]>;
	network: boolean;
	/** The destinations count with network only. */
	rules: Rules;
	ports: string;
	requests: Requests;
	env: string;
}

const empty: Form = { name: "", image: "", snapshot: "", memory: "", cpu: "", ttl: "", idle: "", onIdle: "pause", network: false, rules: { allow: "", deny: "" }, ports: "", requests: { host: "", https: "" }, env: "" };

const lifetimes = [["", "As the image says"], ["900", "15 minutes"], ["3600", "1 hour"], ["28800", "8 hours"], ["86400", "24 hours"]] as const;
const idles = [["", "Nothing happens"], ["300", "5 minutes"], ["1800", "30 minutes"], ["7200", "2 hours"]] as const;

/** request returns the request of the form, and the mistakes in its fields. */
function request(f: Form): { body: CreateSandbox; wrong: Record<string, string> } {
	const body: CreateSandbox = {};
	const wrong: Record<string, string> = {};
	if (f.snapshot) body.snapshot = f.snapshot;
	else if (f.image.trim()) body.image = f.image.trim();
	if (f.name.trim()) body.name = f.name.trim();
	const resources: NonNullable<CreateSandbox["resources"]> = {};
	if (f.cpu.trim()) resources.cpu = f.cpu.trim();
	if (f.memory.trim()) resources.memory = f.memory.trim();
	if (Object.keys(resources).length > 0) body.resources = resources;
	if (f.ttl) body.ttl_seconds = Number(f.ttl);
	if (f.idle) body.timeouts = { idle_seconds: Number(f.idle), on_idle: f.onIdle };
	const ports = entries(f.ports);
	if (!arePorts(ports)) wrong["network.ports"] = noPorts;
	const https = entries(f.requests.https);
	if (!arePorts(https)) wrong["network.https_ports"] = noPorts;
	const network: NonNullable<CreateSandbox["network"]> = {};
	if (f.network) {
		const allow = entries(f.rules.allow);
		const deny = entries(f.rules.deny);
		network.enabled = true;
		if (allow.length > 0) network.allow_out = allow;
		if (deny.length > 0) network.deny_out = deny;
	}
	if (ports.length > 0) network.ports = ports.map(Number);
	if (f.requests.host.trim()) network.request_host = f.requests.host.trim();
	if (https.length > 0) network.https_ports = https.map(Number);
	if (Object.keys(network).length > 0) body.network = network;
	const env: Record<string, string> = {};
	for (const line of f.env.split("\n").filter((l) => l.trim())) {
		const at = line.indexOf("=");
		if (at < 1) wrong.env = `“${line.slice(0, 40)}” is not NAME=value.`;
		else env[line.slice(0, at).trim()] = line.slice(at + 1);
	}
	if (Object.keys(env).length > 0) body.env = env;
	return { body, wrong };
}

/** CreateDialog is open while there is a source, which may be empty. */
export function CreateDialog({ source, onClose, onCreated }: { source: Source | null; onClose: () => void; onCreated: (sb: Sandbox) => void }) {
	return <Modal open={source !== null} onClose={onClose} title="Create a sandbox" wide>{source && <CreateForm source={source} onCreated={onCreated} onClose={onClose} />}</Modal>;
}

function CreateForm({ source, onCreated, onClose }: { source: Source; onCreated: (sb: Sandbox) => void; onClose: () => void }) {
	const [form, setForm] = useState<Form>({ ...empty, ...source });
	const [images, setImages] = useState<string[]>([]);
	const pending = usePending();
	const { body, wrong } = useMemo(() => request(form), [form]);
	const { form: element, setError, fault, rest } = useFaults(wrong);
	useEffect(() => {
		api.images().then(
			(list) => setImages(list.filter((i) => i.enabled).map((i) => (i.tag ? `${i.image}:${i.tag}` : i.image))),
			() => {}, // the names are a help only; any image can be typed
		);
	}, []);
	const set = (change: Partial<Form>) => {
		setForm((was) => ({ ...was, ...change }));
		setError(undefined); // it was about the values before this change
	};

	const submit = async (e: FormEvent) => {
		e.preventDefault();
		if (Object.keys(wrong).length > 0) return;
		setError(undefined);
		try {
			await pending.during(async (signal) => onCreated(await api.create(body, signal)));
		} catch (err) {
			setError(err);
		}
	};

	return (
		<div className="create">
			<form ref={element} onSubmit={submit} className="create-form" aria-label="Create a sandbox">
				{form.snapshot ? <Field label="Snapshot" error={fault("snapshot")}>{(p) => <input {...p} className="mono" value={form.snapshot} readOnly />}</Field> : <Field label="Image" hint="Empty: the default image of the workspace." error={fault("image", "image_id")}>
					{(p) => (
						<>
							<input {...p} list="images" value={form.image} onChange={(e) => set({ image: e.target.value })} placeholder="modbox/code-exec" autoComplete="off" spellCheck={false} autoFocus />
							<datalist id="images">{images.map((i) => <option key={i} value={i} />)}</datalist>
						</>
					)}
				</Field>}
				<Field label="Name" hint="Empty: the server makes one up." error={fault("name")}>{(p) => <input {...p} value={form.name} onChange={(e) => set({ name: e.target.value })} autoComplete="off" spellCheck={false} maxLength={255} />}</Field>
				<div className="pair">
					<Field label="CPU" error={fault("resources.cpu")}>{(p) => <input {...p} value={form.cpu} onChange={(e) => set({ cpu: e.target.value })} placeholder="1 or 500m" autoComplete="off" />}</Field>
					<Field label="Memory" error={fault("resources.memory")}>{(p) => <input {...p} value={form.memory} onChange={(e) => set({ memory: e.target.value })} placeholder="512Mi" autoComplete="off" />}</Field>
				</div>
				<Field label="Lifetime" error={fault("ttl_seconds")}>{(p) => <select {...p} value={form.ttl} onChange={(e) => set({ ttl: e.target.value })}>{lifetimes.map(([v, t]) => <option key={v} value={v}>{t}</option>)}</select>}</Field>
				<div className="pair">
					<Field label="When idle for" error={fault("timeouts")}>{(p) => <select {...p} value={form.idle} onChange={(e) => set({ idle: e.target.value })}>{idles.map(([v, t]) => <option key={v} value={v}>{t}</option>)}</select>}</Field>
					<Field label="Then">{(p) => <select {...p} value={form.onIdle} disabled={!form.idle} onChange={(e) => set({ onIdle: e.target.value as Form["onIdle"] })}><option value="pause">pause it</option><option value="pause_without_memory">pause it without memory</option><option value="destroy">destroy it</option></select>}</Field>
				</div>
				<label className="checkbox"><input type="checkbox" checked={form.network} onChange={(e) => set({ network: e.target.checked })} /><span>Access to the internet<small>The host and private networks stay closed.</small></span></label>
				{form.network && <RuleFields rules={form.rules} faults={{ allow: fault("network.allow_out"), deny: fault("network.deny_out") }} onChange={(rules) => set({ rules })} />}
				<Field label="Published ports" hint="Each gets a URL of its own." error={fault("network.ports")}>{(p) => <input {...p} value={form.ports} onChange={(e) => set({ ports: e.target.value })} placeholder="3000, 8080" autoComplete="off" inputMode="numeric" />}</Field>
				<Fold name="Requests to its servers" wrong={Boolean(fault("network.request_host", "network.https_ports"))}>
					<RequestFields requests={form.requests} faults={{ host: fault("network.request_host"), https: fault("network.https_ports") }} onChange={(requests) => set({ requests })} />
				</Fold>
				<Field label="Environment variables" hint="NAME=value, one on a line. They are never shown again." error={fault("env")}>{(p) => <textarea {...p} rows={2} value={form.env} onChange={(e) => set({ env: e.target.value })} spellCheck={false} autoComplete="off" />}</Field>
				<FormError rest={rest} />
				<FormFoot pending={pending} action="Create" working="Creating…" ready={Object.keys(wrong).length === 0} onClose={onClose} />
			</form>
			<Tabs.Root className="code" defaultValue="TypeScript">
				<div className="code-head">
					<Tabs.List aria-label="The same request as a program">{languages.map((l) => <Tabs.Trigger key={l} value={l}>{l}</Tabs.Trigger>)}</Tabs.List>
				</div>
				{languages.map((l) => {
					const text = snippet(l, body);
					return (
						<Tabs.Content key={l} value={l} className="code-body">
							<CopyButton text={text} label={`Copy the ${l} program`}>Copy</CopyButton>
							<pre tabIndex={0} aria-label={`${l} program`}><code>{text}</code></pre>
						</Tabs.Content>
					);
				})}
			</Tabs.Root>
		</div>
	);
}
