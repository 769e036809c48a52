// The actions on one sandbox: as buttons of its page, and as a menu of its row.
import { ChevronDown, Copy, EllipsisVertical, ExternalLink, Pause, Play, Save, SquareTerminal, Trash2 } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { useState } from "react";
import { useLocation } from "wouter";
import { api, message, type Sandbox } from "./api.ts";
import { hasEnded } from "./format.ts";
import { Confirm } from "./parts.tsx";
import { useSession } from "./session.ts";

export const pausable = (sb: Sandbox) => sb.state === "running";
export const resumable = (sb: Sandbox) => sb.state === "paused";
export const destroyable = (sb: Sandbox) => !hasEnded(sb.state) && sb.state !== "destroying";

/** useActions returns the calls of the actions, which show their errors. */
function useActions(sb: Sandbox, onChange?: (sb: Sandbox) => void) {
	const { store, say } = useSession();
	const done = (now: Sandbox) => {
		store.put(now);
		onChange?.(now);
	};
	const tell = (call: (id: string) => Promise<Sandbox>) => () => void call(sb.id).then(done, (err: unknown) => say(message(err), true));
	return {
		pause: tell(api.pause),
		pauseFiles: async (signal: AbortSignal) => {
			done(await api.pauseFiles(sb.id, signal));
			say(`${sb.name} is paused without its memory`);
		},
		resume: tell(api.resume),
		destroy: async (signal: AbortSignal) => {
			done(await api.destroy(sb.id, signal));
			say(`${sb.name} is destroyed`);
		},
	};
}

function ConfirmDestroy({ sb, open, onClose, run }: { sb: Sandbox; open: boolean; onClose: () => void; run: (signal: AbortSignal) => Promise<void> }) {
	return <Confirm open={open} onClose={onClose} title={`Destroy ${sb.name}?`} text="Its processes, memory and files are gone for good. Checkpoints of it are removed; snapshots stay." action="Destroy" run={run} />;
}

function ConfirmPauseFiles({ sb, open, onClose, run }: { sb: Sandbox; open: boolean; onClose: () => void; run: (signal: AbortSignal) => Promise<void> }) {
	return <Confirm open={open} onClose={onClose} title={`Pause ${sb.name} without its memory?`} text="Its processes are ended, and what they have in memory is lost. Its files are saved, and a resume starts it anew with them." action="Pause without memory" mild run={run} />;
}

/** SandboxMenu makes its menu when it is opened: a long list has a button in each row. */
export function SandboxMenu({ sb }: { sb: Sandbox }) {
	const [opened, setOpened] = useState(false);
	if (opened) return <Menu sb={sb} />;
	return <button type="button" className="icon-button small" aria-label={`Actions for ${sb.name}`} aria-haspopup="menu" aria-expanded={false} onClick={() => setOpened(true)}><EllipsisVertical size={15} /></button>;
}

function Menu({ sb }: { sb: Sandbox }) {
	const { mayWrite } = useSession();
	const { pause, pauseFiles, resume, destroy } = useActions(sb);
	const [asking, setAsking] = useState<"pause" | "destroy" | null>(null);
	const close = () => setAsking(null);
	const [, navigate] = useLocation();
	return (
		<>
			<DropdownMenu.Root defaultOpen>
				<DropdownMenu.Trigger className="icon-button small" aria-label={`Actions for ${sb.name}`}><EllipsisVertical size={15} /></DropdownMenu.Trigger>
				<DropdownMenu.Portal>
					<DropdownMenu.Content className="menu" align="end" sideOffset={4}>
						<DropdownMenu.Item className="menu-item" onSelect={() => void navigator.clipboard.writeText(sb.id)}><Copy size={15} />Copy the id</DropdownMenu.Item>
						{mayWrite && !hasEnded(sb.state) && <DropdownMenu.Item className="menu-item" onSelect={() => navigate(`/sandboxes/${sb.id}/terminal`)}><SquareTerminal size={15} />Open a terminal</DropdownMenu.Item>}
						{mayWrite && pausable(sb) && <DropdownMenu.Item className="menu-item" onSelect={pause}><Pause size={15} />Pause</DropdownMenu.Item>}
						{mayWrite && pausable(sb) && <DropdownMenu.Item className="menu-item" onSelect={() => setAsking("pause")}><Save size={15} />Pause without memory…</DropdownMenu.Item>}
						{mayWrite && resumable(sb) && <DropdownMenu.Item className="menu-item" onSelect={resume}><Play size={15} />Resume</DropdownMenu.Item>}
						{mayWrite && destroyable(sb) && (
							<>
								<DropdownMenu.Separator className="menu-line" />
								<DropdownMenu.Item className="menu-item danger" onSelect={() => setAsking("destroy")}><Trash2 size={15} />Destroy…</DropdownMenu.Item>
							</>
						)}
					</DropdownMenu.Content>
				</DropdownMenu.Portal>
			</DropdownMenu.Root>
			{asking === "pause" && <ConfirmPauseFiles sb={sb} open onClose={close} run={pauseFiles} />}
			{asking === "destroy" && <ConfirmDestroy sb={sb} open onClose={close} run={destroy} />}
		</>
	);
}

export function SandboxButtons({ sb, onChange }: { sb: Sandbox; onChange: (sb: Sandbox) => void }) {
	const { mayWrite } = useSession();
	const { pause, pauseFiles, resume, destroy } = useActions(sb, onChange);
	const [asking, setAsking] = useState<"pause" | "destroy" | null>(null);
	const close = () => setAsking(null);
	return (
		<div className="buttons">
			{sb.url && !hasEnded(sb.state) && <a className="button" href={sb.url} target="_blank" rel="noopener noreferrer"><ExternalLink size={15} aria-hidden="true" />Open its page</a>}
			{mayWrite && pausable(sb) && (
				<div className="joined">
					<button type="button" className="button" onClick={pause}><Pause size={15} aria-hidden="true" />Pause</button>
					<DropdownMenu.Root modal={false}>
						<DropdownMenu.Trigger className="button" aria-label="Kinds of pause"><ChevronDown size={15} aria-hidden="true" /></DropdownMenu.Trigger>
						<DropdownMenu.Portal>
							<DropdownMenu.Content className="menu kinds" align="end" sideOffset={4}>
								<DropdownMenu.Item className="menu-item" onSelect={pause}><Pause size={15} /><span>Pause<small>Saves memory and files; programs go on at the resume.</small></span></DropdownMenu.Item>
								<DropdownMenu.Item className="menu-item" onSelect={() => setAsking("pause")}><Save size={15} /><span>Pause without memory…<small>Ends programs and saves files; faster, and takes less disk.</small></span></DropdownMenu.Item>
							</DropdownMenu.Content>
						</DropdownMenu.Portal>
					</DropdownMenu.Root>
				</div>
			)}
			{mayWrite && resumable(sb) && <button type="button" className="button" onClick={resume}><Play size={15} aria-hidden="true" />Resume</button>}
			{mayWrite && destroyable(sb) && <button type="button" className="button danger" onClick={() => setAsking("destroy")}><Trash2 size={15} aria-hidden="true" />Destroy</button>}
			<ConfirmPauseFiles sb={sb} open={asking === "pause"} onClose={close} run={pauseFiles} />
			<ConfirmDestroy sb={sb} open={asking === "destroy"} onClose={close} run={destroy} />
		</div>
	);
}
