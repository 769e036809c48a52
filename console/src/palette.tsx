// Commands and sandboxes by the keyboard: Ctrl K.
import { Command } from "cmdk";
import { Box, Hammer, LogOut, Moon, Plus, Sun } from "lucide-react";
import { Dialog } from "radix-ui";
import { useState } from "react";
import { useLocation } from "wouter";
import { useSandboxes } from "./hooks.ts";
import { State } from "./parts.tsx";
import { places } from "./places.ts";
import { useMay, useSession } from "./session.ts";
import { applyTheme } from "./theme.ts";

/** shown bounds the sandboxes in the palette; more are found by typing. */
const shown = 30;

export function Palette({ open, onClose }: { open: boolean; onClose: () => void }) {
	return (
		<Dialog.Root open={open} onOpenChange={(now) => !now && onClose()}>
			<Dialog.Portal>
				<Dialog.Overlay className="overlay" />
				<Dialog.Content className="dialog palette" aria-describedby={undefined}>
					<Dialog.Title className="visually-hidden">Commands and search</Dialog.Title>
					<Commands onClose={onClose} />
				</Dialog.Content>
			</Dialog.Portal>
		</Dialog.Root>
	);
}

function Commands({ onClose }: { onClose: () => void }) {
	const { me, workspaces, mayWrite, create, choose, signOut } = useSession();
	const { items } = useSandboxes();
	const may = useMay();
	const [text, setText] = useState("");
	const [, navigate] = useLocation();
	const run = (action: () => void) => () => {
		onClose();
		action();
	};
	const wanted = text.trim().toLowerCase();
	const matches = (...words: string[]) => wanted === "" || words.some((w) => w.toLowerCase().includes(wanted));
	const found = items.filter((s) => matches(s.name, s.id)).slice(0, shown);
	const others = workspaces.filter((w) => w.id !== me.workspace_id && matches(w.name, w.slug, "workspace"));
	return (
		<Command label="Commands and search" shouldFilter={false} loop>
			<Command.Input value={text} onValueChange={setText} placeholder="A command, or the name of a sandbox" aria-label="A command, or the name of a sandbox" />
			<Command.List label="Results">
				<Command.Empty className="palette-empty">Nothing has this name.</Command.Empty>
				{found.length > 0 && (
					<Command.Group heading="Sandboxes">
						{found.map((s) => (
							<Command.Item key={s.id} value={s.id} onSelect={run(() => navigate(`/sandboxes/${s.id}`))}>
								<Box size={15} aria-hidden="true" /><span className="grow clip">{s.name}</span><State state={s.state} filesOnly={s.paused_without_memory} />
							</Command.Item>
						))}
					</Command.Group>
				)}
				<Command.Group heading="Commands">
					{mayWrite && matches("create a sandbox", "new") && <Command.Item value="create" onSelect={run(create)}><Plus size={15} aria-hidden="true" />Create a sandbox</Command.Item>}
					{matches("list of sandboxes", "go") && <Command.Item value="list" onSelect={run(() => navigate("/"))}><Box size={15} aria-hidden="true" />Go to the list of sandboxes</Command.Item>}
					{places.filter((p) => may(p.needs) && matches(`go to ${p.name}`)).map(({ path, name, icon: Icon }) => <Command.Item key={path} value={path} onSelect={run(() => navigate(path))}><Icon size={15} aria-hidden="true" />Go to {name}</Command.Item>)}
					{may("images:write") && matches("build an image") && <Command.Item value="build" onSelect={run(() => navigate("/images/build"))}><Hammer size={15} aria-hidden="true" />Build an image</Command.Item>}
					{matches("light theme") && <Command.Item value="light" onSelect={run(() => applyTheme("light"))}><Sun size={15} aria-hidden="true" />Light theme</Command.Item>}
					{matches("dark theme") && <Command.Item value="dark" onSelect={run(() => applyTheme("dark"))}><Moon size={15} aria-hidden="true" />Dark theme</Command.Item>}
					{others.map((w) => <Command.Item key={w.id} value={`workspace ${w.id}`} onSelect={run(() => void choose(w.id))}><span className="avatar tiny" aria-hidden="true">{w.name.slice(0, 1)}</span>Go to workspace {w.name}</Command.Item>)}
					{matches("sign out", "log out") && <Command.Item value="sign out" onSelect={run(signOut)}><LogOut size={15} aria-hidden="true" />Sign out</Command.Item>}
				</Command.Group>
			</Command.List>
		</Command>
	);
}
