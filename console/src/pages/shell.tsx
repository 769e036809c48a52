// The frame of the pages beside the sandboxes.
import "../styles/box.css";
import "../styles/admin.css";
import { Search } from "lucide-react";
import { type ReactNode, useRef } from "react";
import { useKeys, useTitle } from "../hooks.ts";

/** AdminPage has a head with the page's actions, and a body that scrolls. */
export function AdminPage({ title, actions, tools, back, children }: { title: string; actions?: ReactNode; tools?: ReactNode; back?: ReactNode; children: ReactNode }) {
	useTitle(title);
	return (
		<div className="page">
			<header className="page-head admin-head">
				{back}
				<h1 className="clip">{title}</h1>
				<span className="grow" />
				{actions && <div className="buttons">{actions}</div>}
			</header>
			{tools && <div className="toolbar">{tools}</div>}
			<div className="tab scroll" role="region" aria-label={title} tabIndex={0}><div className="stack">{children}</div></div>
		</div>
	);
}

/** SearchField narrows a list; the key / leads to it. */
export function SearchField({ label, value, onChange }: { label: string; value: string; onChange: (text: string) => void }) {
	const field = useRef<HTMLInputElement>(null);
	useKeys((e) => {
		if (e.key !== "/") return;
		e.preventDefault();
		field.current?.focus();
	});
	return (
		<label className="search">
			<Search size={15} aria-hidden="true" />
			<input ref={field} type="search" aria-label={label} placeholder={label} value={value} onChange={(e) => onChange(e.target.value)} onKeyDown={(e) => { if (e.key === "Escape") onChange(""); }} />
			<kbd>/</kbd>
		</label>
	);
}

/** Segments choose one of a few. */
export function Segments<T extends string>({ label, options, value, onChange }: { label: string; options: readonly { id: T; name: string }[]; value: T; onChange: (id: T) => void }) {
	return (
		<div className="segments" role="group" aria-label={label}>
			{options.map((o) => <button key={o.id} type="button" aria-pressed={value === o.id} onClick={() => onChange(o.id)}>{o.name}</button>)}
		</div>
	);
}

/** Fact is a name with its value in a list of facts. */
export function Fact({ name, title, children }: { name: string; title?: string | undefined; children: ReactNode }) {
	return <div className="item"><dt>{name}</dt><dd title={title}>{children}</dd></div>;
}

/** Bar shows how much of a limit is used; a limit of 0 is none. */
export function Bar({ name, used, limit, write, own, note }: { name: string; used: number; limit: number; write: (n: number) => string; own?: boolean; note?: ReactNode }) {
	return (
		<div className="bar-row">
			<p><b>{name}</b>{own && <span className="chip">set for this workspace</span>}<span className="grow" /><span>{write(used)} <span className="muted">{limit > 0 ? `of ${write(limit)}` : "· no limit"}</span></span></p>
			{limit > 0 && <meter aria-label={name} min={0} max={limit} high={limit * 0.85} value={used} aria-valuetext={`${write(used)} of ${write(limit)}`} />}
			{note && <p className="note">{note}</p>}
		</div>
	);
}
