// The desktop of a sandbox: noVNC, which the sandbox itself serves at its URL, in a frame of that origin.
import "../styles/box.css";
import "../styles/desktop.css";
import { ExternalLink, Monitor, Play } from "lucide-react";
import { useState } from "react";
import { api } from "../api.ts";
import { useAct } from "../hooks.ts";
import type { TabProps } from "../pages/sandbox.tsx";
import { Empty } from "../parts.tsx";
import { hosted } from "./hosted.ts";

export default function Desktop({ sb, onChange }: TabProps) {
	const [control, setControl] = useState(false);
	const { act, busy } = useAct();
	const at = hosted(sb.url);
	const page = at && new URL(control ? "/vnc/" : "/vnc/?view_only", at).href;
	const own = `${sb.url.replace(/\/$/, "")}/vnc/`;
	if (sb.state !== "running") {
		return (
			<Empty icon={<Monitor size={22} />} title={`The sandbox is ${sb.state}`} text="Its desktop is shown while it runs.">
				{sb.state === "paused" && <button type="button" className="button primary" disabled={busy} onClick={() => void act(async () => onChange(await api.resume(sb.id)))}><Play size={15} aria-hidden="true" />Resume</button>}
			</Empty>
		);
	}
	if (!page) {
		return (
			<Empty icon={<Monitor size={22} />} title="The desktop has a window of its own" text="On a server without a domain for sandboxes, pages of sandboxes cannot be shown in the console.">
				<a className="button primary" href={own} target="_blank" rel="noopener noreferrer"><ExternalLink size={15} aria-hidden="true" />Open the desktop</a>
			</Empty>
		);
	}
	return (
		<div className="desktop">
			<div className="desktop-tools">
				<button type="button" role="switch" aria-checked={control} aria-label="Mouse and keyboard go to the desktop" className="switch" onClick={() => setControl(!control)}><i /></button>
				<span className="muted">{control ? <>Mouse and keyboard go to the desktop. <kbd>F6</kbd> leaves it.</> : "You watch. Switch on to use mouse and keyboard."}</span>
				<span className="grow" />
				<a className="button small" href={own} target="_blank" rel="noopener noreferrer"><ExternalLink size={14} aria-hidden="true" />In a window of its own</a>
			</div>
			<iframe key={page} className="desktop-frame" src={page} title={`Desktop of ${sb.name}`} sandbox="allow-scripts allow-same-origin" referrerPolicy="no-referrer" tabIndex={control ? 0 : -1} />
		</div>
	);
}
