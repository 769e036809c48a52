// The API tokens of the user.
import { KeyRound, Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { accounts, type NewToken, type Token } from "../calls/accounts.ts";
import { ago, moment, until } from "../format.ts";
import { useLoad, useNow } from "../hooks.ts";
import { Confirm, Empty, Failure, Field, Modal, Skeleton } from "../parts.tsx";
import { useMay, useSession } from "../session.ts";
import { DialogForm, Shown } from "./form.tsx";
import { AdminPage } from "./shell.tsx";

const day = 86_400;
const lifetimes = [[7 * day, "7 days"], [30 * day, "30 days"], [90 * day, "90 days"], [365 * day, "a year"], [0, "for ever"]] as const;

export default function Tokens() {
	const may = useMay();
	const { data, error, reload } = useLoad(accounts.tokens);
	const [asking, setAsking] = useState(false);
	const mayMake = may("tokens:write");
	const create = mayMake && <button type="button" className="button primary" onClick={() => setAsking(true)}><Plus size={16} aria-hidden="true" />Create a token</button>;
	return (
		<AdminPage title="Tokens" actions={create}>
			{error && <Failure text={error} retry={reload} />}
			{!data ? !error && <Skeleton label="Loading the tokens" /> : data.length === 0 ? (
				<Empty icon={<KeyRound size={22} />} title="No tokens" text="Programs sign in with a token: the command line, an SDK, or a build.">{create}</Empty>
			) : (
				<section className="card">
					<h2>Your tokens</h2>
					<p className="muted lead">They act for you. Others do not see them, and nobody sees their text again.</p>
					<ul className="rows" aria-label="Tokens">{data.map((t) => <Row key={t.id} token={t} reload={reload} />)}</ul>
				</section>
			)}
			<Modal open={asking} onClose={() => setAsking(false)} title="Create a token"><Create onClose={() => setAsking(false)} done={reload} /></Modal>
		</AdminPage>
	);
}

function Row({ token, reload }: { token: Token; reload: () => void }) {
	const { me, workspaces, say } = useSession();
	const may = useMay();
	const now = useNow(30_000);
	const [asking, setAsking] = useState(false);
	const name = token.description || token.id.slice(0, 13);
	const over = token.expires_at !== undefined && Date.parse(token.expires_at) < now;
	const home = workspaces.find((w) => w.id === token.workspace_id);
	return (
		<li>
			<div className="row-main">
				<p><b className="clip">{name}</b>{token.id === me.token_id && <span className="chip">this sign-in</span>}{over && <span className="chip">expired</span>}</p>
				<p className="facts">
					<span>{home?.name ?? token.workspace_id}{token.workspace_only && " only"}</span>
					<span title={moment(token.created_at)}>created {ago(token.created_at, now)}</span>
					<span title={token.last_used_at && moment(token.last_used_at)}>{token.last_used_at ? `used ${ago(token.last_used_at, now)}` : "never used"}</span>
					<span title={token.expires_at && moment(token.expires_at)}>{!token.expires_at ? "works for ever" : over ? "works no more" : `ends in ${until(token.expires_at, now)}`}</span>
				</p>
				<div className="chips">{token.scopes?.length ? token.scopes.map((s) => <span key={s} className="chip mono">{s}</span>) : <span className="chip">all that you may</span>}</div>
			</div>
			{may("tokens:write") && <div className="row-actions"><button type="button" className="button small danger" aria-label={`Revoke ${name}`} onClick={() => setAsking(true)}><Trash2 size={14} aria-hidden="true" />Revoke</button></div>}
			<Confirm open={asking} onClose={() => setAsking(false)} title={`Revoke ${name}?`} text={<>It stops working at once, for everything that uses it.{token.id === me.token_id && " You are signed in with it: you will be signed out."}</>} action="Revoke" run={async (signal) => { await accounts.revoke(token.id, signal); reload(); say(`${name} is revoked`); }} />
		</li>
	);
}

function Create({ onClose, done }: { onClose: () => void; done: () => void }) {
	const { me } = useSession();
	const [description, setDescription] = useState("");
	const [seconds, setSeconds] = useState<number>(90 * day);
	const [narrow, setNarrow] = useState(false);
	const [scopes, setScopes] = useState<ReadonlySet<string>>(new Set());
	const [only, setOnly] = useState(false);
	const [made, setMade] = useState<NewToken | null>(null);
	if (made) return <Shown label="Token" text={made.token} lead="Give it to the program, as MODBOX_API_TOKEN or by modbox login --token. Whoever has it can act for you." onClose={onClose} />;
	return (
		<DialogForm
			action="Create" onClose={onClose} ready={!narrow || scopes.size > 0}
			run={async (signal) => {
				setMade(await accounts.createToken({ description: description.trim(), ...(seconds ? { expires_in_seconds: seconds } : {}), ...(narrow ? { scopes: [...scopes] } : {}), ...(only ? { workspace_only: true } : {}) }, signal));
				done();
			}}
		>
			{(fault) => (
				<>
					<Field label="What it is for" error={fault("description")}>{(p) => <input {...p} value={description} onChange={(e) => setDescription(e.target.value)} placeholder="CI of the web shop" autoFocus autoComplete="off" />}</Field>
					<Field label="It works for" error={fault("expires_in_seconds")}>{(p) => <select {...p} value={seconds} onChange={(e) => setSeconds(Number(e.target.value))}>{lifetimes.map(([v, t]) => <option key={v} value={v}>{t}</option>)}</select>}</Field>
					<label className="checkbox"><input type="checkbox" checked={only} onChange={(e) => setOnly(e.target.checked)} /><span>Only this workspace<small>It keeps out of your other workspaces.</small></span></label>
					<label className="checkbox"><input type="checkbox" checked={narrow} onChange={(e) => setNarrow(e.target.checked)} /><span>Only some permissions<small>Else it may do all that you may.</small></span></label>
					{narrow && (
						<fieldset className="scopes">
							<legend className="visually-hidden">Permissions</legend>
							{(me.permissions ?? []).map((s) => (
								<label key={s} className="checkbox mono"><input type="checkbox" checked={scopes.has(s)} onChange={(e) => setScopes((was) => { const next = new Set(was); if (e.target.checked) next.add(s); else next.delete(s); return next; })} />{s}</label>
							))}
						</fieldset>
					)}
					{fault("scopes") && <p className="note bad" role="alert">{fault("scopes")}</p>}
				</>
			)}
		</DialogForm>
	);
}
