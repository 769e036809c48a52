// The ports and the network of a sandbox: addresses, previews, links to share.
import "../styles/box.css";
import { ExternalLink, Eye, Globe, Link2, RefreshCw, RotateCw, Trash2 } from "lucide-react";
import { type FormEvent, type ReactNode, useCallback, useState } from "react";
import { message, type Sandbox } from "../api.ts";
import { box, type PortLink, type PublishedPort } from "../calls/box.ts";
import { FormError, type Faults, useFaults } from "../faults.tsx";
import { moment, until } from "../format.ts";
import { useAct, useLoad, useNow } from "../hooks.ts";
import { Confirm, CopyButton, Empty, Failure, Field, Modal, Skeleton } from "../parts.tsx";
import { arePorts, entries, everything, noPorts, reach, RequestFields, type Requests, RuleFields, type Rules } from "../rules.tsx";
import { useSession } from "../session.ts";
import { hosted } from "./hosted.ts";

const times = [{ name: "15 minutes", seconds: 900 }, { name: "1 hour", seconds: 3600 }, { name: "1 day", seconds: 86_400 }, { name: "7 days", seconds: 604_800 }];

export default function Ports({ sb, onChange }: { sb: Sandbox; onChange: (sb: Sandbox) => void }) {
	const { data, error, reload } = useLoad(useCallback((signal: AbortSignal) => box.ports(sb.id, signal), [sb.id]));
	return (
		<div className="stack">
			<Internet sb={sb} onChange={onChange} />
			<section className="card">
				<h2>Published ports</h2>
				<p className="muted lead">A published port has a URL of its own, which leads to the server that listens on it in the sandbox.</p>
				<Publish sb={sb} done={reload} />
				{error && <Failure text={error} retry={reload} />}
				{!data ? !error && <Skeleton label="Loading the ports" rows={2} /> : data.length === 0 ? (
					<Empty icon={<Globe size={22} />} title="No port is published" text="Start a server in the sandbox that listens on 0.0.0.0, and publish its port here." />
				) : <ul className="rows" aria-label="Ports">{data.map((p) => <Port key={p.port} sb={sb} port={p} reload={reload} />)}</ul>}
			</section>
			<section className="card">
				<h2>Requests to its servers</h2>
				<p className="muted lead">How requests to published ports and to the sandbox's own URL reach the servers in it.</p>
				<RequestsForm sb={sb} onChange={onChange} />
			</section>
		</div>
	);
}

function Internet({ sb, onChange }: { sb: Sandbox; onChange: (sb: Sandbox) => void }) {
	const { act, busy } = useAct();
	const on = sb.network.enabled;
	return (
		<section className="card">
			<h2>Internet</h2>
			<div className="line">
				<p className="grow">Programs in the sandbox reach {reach(sb.network)}.{on && " The server's host and private networks are closed to them."}</p>
				<button type="button" role="switch" aria-checked={on} aria-label="Access to the internet" className="switch" disabled={busy} onClick={() => void act(async () => onChange(await box.network(sb.id, { enabled: !on })), on ? "The internet is closed to the sandbox" : "The sandbox reaches the internet")}><i /></button>
			</div>
			{on && <RulesForm sb={sb} onChange={onChange} />}
		</section>
	);
}

/** RulesForm changes the destinations that the sandbox may reach. */
function RulesForm({ sb, onChange }: { sb: Sandbox; onChange: (sb: Sandbox) => void }) {
	const texts = (from: Sandbox): Rules => ({ allow: from.network.allow_out.join("\n"), deny: from.network.deny_out.join("\n") });
	const [rules, setRules] = useState(() => texts(sb));
	return (
		<NetworkForm
			action="Save the destinations" done="The destinations are saved" onChange={onChange}
			run={async () => {
				const allowed = entries(rules.allow);
				const denied = entries(rules.deny);
				const changed = await box.network(sb.id, { allow_out: allowed, deny_out: allowed.length > 0 && denied.length === 0 ? [everything] : denied });
				setRules(texts(changed));
				return changed;
			}}
		>
			{(fault) => <RuleFields rules={rules} faults={{ allow: fault("allow_out"), deny: fault("deny_out") }} onChange={setRules} />}
		</NetworkForm>
	);
}

/** RequestsForm changes how requests reach the servers of the sandbox. */
function RequestsForm({ sb, onChange }: { sb: Sandbox; onChange: (sb: Sandbox) => void }) {
	const texts = (from: Sandbox): Requests => ({ host: from.network.request_host, https: from.network.https_ports.join(", ") });
	const [requests, setRequests] = useState(() => texts(sb));
	const https = entries(requests.https);
	return (
		<NetworkForm
			action="Save" done="Requests reach its servers this way from now on" onChange={onChange} wrong={arePorts(https) ? {} : { https_ports: noPorts }}
			run={async () => {
				const changed = await box.network(sb.id, { request_host: requests.host.trim(), https_ports: https.map(Number) });
				setRequests(texts(changed));
				return changed;
			}}
		>
			{(fault) => <RequestFields requests={requests} faults={{ host: fault("request_host"), https: fault("https_ports") }} onChange={setRequests} />}
		</NetworkForm>
	);
}

/** NetworkForm changes a part of the network of a sandbox. */
function NetworkForm({ action, done, wrong, run, onChange, children }: { action: string; done: string; wrong?: Record<string, string>; run: () => Promise<Sandbox>; onChange: (sb: Sandbox) => void; children: (fault: Faults["fault"]) => ReactNode }) {
	const { say } = useSession();
	const { form, setError, fault, rest } = useFaults(wrong);
	const [busy, setBusy] = useState(false);
	const submit = async (e: FormEvent) => {
		e.preventDefault();
		if (Object.keys(wrong ?? {}).length > 0) return;
		setBusy(true);
		try {
			onChange(await run());
			setError(undefined);
			say(done);
		} catch (err) {
			setError(err);
		} finally {
			setBusy(false);
		}
	};
	return (
		<form className="rules" ref={form} onSubmit={(e) => void submit(e)}>
			{children(fault)}
			<FormError rest={rest} />
			<div className="line"><button type="submit" className="button" disabled={busy}>{action}</button></div>
		</form>
	);
}

function Publish({ sb, done }: { sb: Sandbox; done: () => void }) {
	const [port, setPort] = useState("");
	const [access, setAccess] = useState<PublishedPort["access"]>("public");
	const [error, setError] = useState("");
	const submit = async (e: FormEvent) => {
		e.preventDefault();
		const n = Number(port);
		if (!Number.isInteger(n) || n < 1 || n > 65_535) {
			setError("A port is a number from 1 to 65535.");
			return;
		}
		try {
			await box.publish(sb.id, n, access);
			setPort("");
			setError("");
			done();
		} catch (err) {
			setError(message(err));
		}
	};
	return (
		<form className="inline-form" onSubmit={(e) => void submit(e)}>
			<Field label="Port" error={error || undefined}>{(p) => <input {...p} inputMode="numeric" placeholder="3000" value={port} autoComplete="off" onChange={(e) => setPort(e.target.value)} />}</Field>
			<Field label="Visitors">{(p) => (
				<select {...p} value={access} onChange={(e) => setAccess(e.target.value as PublishedPort["access"])}>
					<option value="public">everybody with the URL</option>
					<option value="private">with a token or a link</option>
				</select>
			)}</Field>
			<button type="submit" className="button" disabled={!port.trim()}>Publish</button>
		</form>
	);
}

function Port({ sb, port, reload }: { sb: Sandbox; port: PublishedPort; reload: () => void }) {
	const [asking, setAsking] = useState<"rotate" | "remove" | "share" | null>(null);
	const { act, busy } = useAct();
	const other = port.access === "public" ? "private" : "public";
	const close = () => setAsking(null);
	const [seen, setSeen] = useState(false);
	// A private port asks its visitors for a cookie, which browsers do not keep for a frame.
	const page = port.url && port.access === "public" && sb.state === "running" ? hosted(port.url) : null;
	return (
		<li>
			<div className="row-main">
				<p><b className="mono big">{port.port}</b> <span className="state" data-tone={port.access === "public" ? "good" : "quiet"}>{port.access}</span></p>
				{port.url && <p className="address"><a href={port.url} target="_blank" rel="noopener noreferrer" className="clip mono">{port.url}</a><CopyButton text={port.url} label={`Copy the URL of port ${port.port}`} /></p>}
			</div>
			<div className="row-actions">
				{page && <button type="button" className="button small" aria-expanded={seen} aria-label={`Preview of port ${port.port}`} onClick={() => setSeen(!seen)}><Eye size={14} aria-hidden="true" />Preview</button>}
				{port.url && <a className="button small" href={port.url} target="_blank" rel="noopener noreferrer"><ExternalLink size={14} aria-hidden="true" />Open</a>}
				<button type="button" className="button small" onClick={() => setAsking("share")}><Link2 size={14} aria-hidden="true" />Share…</button>
				<button type="button" className="button small" disabled={busy} onClick={() => void act(async () => { await box.publish(sb.id, port.port, other); reload(); }, `Port ${port.port} is ${other}`)}>Make {other}</button>
				<button type="button" className="icon-button small" aria-label={`New URL for port ${port.port}`} title="New URL" onClick={() => setAsking("rotate")}><RefreshCw size={14} /></button>
				<button type="button" className="icon-button small" aria-label={`Unpublish port ${port.port}`} title="Unpublish" onClick={() => setAsking("remove")}><Trash2 size={14} /></button>
			</div>
			{page && seen && <Preview url={page.href} port={port.port} />}
			<Confirm open={asking === "rotate"} onClose={close} title={`A new URL for port ${port.port}?`} text="The URL of now and all links to it stop working at once." action="Change the URL" run={async (signal) => { await box.rotate(sb.id, port.port, signal); reload(); }} />
			<Confirm open={asking === "remove"} onClose={close} title={`Unpublish port ${port.port}?`} text="Its URL and all links to it stop working at once." action="Unpublish" run={async (signal) => { await box.unpublish(sb.id, port.port, signal); reload(); }} />
			<Modal open={asking === "share"} onClose={close} title={`Share port ${port.port}`}><Share sb={sb} port={port} /></Modal>
		</li>
	);
}

/** Preview shows the page of a port, in a frame of that origin, which can lead neither the console nor another window anywhere. */
function Preview({ url, port }: { url: string; port: number }) {
	const [turn, setTurn] = useState(0);
	return (
		<div className="preview">
			<p className="muted"><span className="grow">The page as visitors see it. Some pages refuse to be shown in a frame: open them in a window.</span><button type="button" className="button small" onClick={() => setTurn(turn + 1)}><RotateCw size={14} aria-hidden="true" />Load again</button></p>
			<iframe key={turn} src={url} title={`Page of port ${port}`} sandbox="allow-scripts allow-same-origin allow-forms" referrerPolicy="no-referrer" />
		</div>
	);
}

function Share({ sb, port }: { sb: Sandbox; port: PublishedPort }) {
	const [seconds, setSeconds] = useState(3600);
	const [link, setLink] = useState<PortLink | null>(null);
	const { act, busy } = useAct();
	const now = useNow();
	return (
		<form className="ask" onSubmit={(e) => { e.preventDefault(); void act(async () => setLink(await box.link(sb.id, port.port, seconds))); }}>
			<p className="muted">A link lets a visitor without a token use the port until the link expires. It is shown only now.</p>
			<Field label="The link works for">{(p) => <select {...p} value={seconds} onChange={(e) => setSeconds(Number(e.target.value))}>{times.map((t) => <option key={t.seconds} value={t.seconds}>{t.name}</option>)}</select>}</Field>
			{link && (
				<div className="secret">
					<input readOnly aria-label="Link" className="mono" value={link.url} onFocus={(e) => e.target.select()} />
					<CopyButton text={link.url} label="Copy the link">Copy</CopyButton>
					<small className="muted" title={moment(link.expires_at)}>expires in {until(link.expires_at, now)}</small>
				</div>
			)}
			<footer className="dialog-foot"><button type="submit" className="button primary" disabled={busy}>{link ? "Make another link" : "Make a link"}</button></footer>
		</form>
	);
}
