// The frame around all pages: navigation, workspace, theme, the user's menu.
import { Box, Check, ChevronsUpDown, LogOut, Monitor, Moon, Search, Sun } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { type ReactNode, useState } from "react";
import { Link, useLocation } from "wouter";
import { useCurrentInView } from "./hooks.ts";
import { Logo } from "./parts.tsx";
import { places } from "./places.ts";
import { useMay, useSession } from "./session.ts";
import { applyTheme, theme, type Theme } from "./theme.ts";

const themes: { id: Theme; name: string; icon: ReactNode }[] = [
	{ id: "system", name: "As the system", icon: <Monitor size={15} /> },
	{ id: "light", name: "Light", icon: <Sun size={15} /> },
	{ id: "dark", name: "Dark", icon: <Moon size={15} /> },
];

export function Frame({ onPalette, children }: { onPalette: () => void; children: ReactNode }) {
	const [location] = useLocation();
	const may = useMay();
	const nav = useCurrentInView<HTMLElement>(location); // on a phone it is a row
	const here = location === "/" || location.startsWith("/sandboxes");
	return (
		<div className="frame">
			<a className="skip" href="#main">Skip to the content</a>
			<header className="side">
				<div className="side-top"><Link href="/" className="logo-link" aria-label="Modbox, list of sandboxes"><Logo /></Link></div>
				<WorkspaceMenu />
				<button type="button" className="find" onClick={onPalette}>
					<Search size={15} aria-hidden="true" /> <span>Find…</span> <kbd aria-hidden="true">Ctrl K</kbd>
				</button>
				<nav aria-label="Main" ref={nav}>
					<Link href="/" className="nav" aria-current={here ? "page" : undefined}><Box size={16} aria-hidden="true" /> <span>Sandboxes</span></Link>
					{places.filter((p) => may(p.needs)).map(({ path, name, icon: Icon }) => (
						<Link key={path} href={path} className="nav" aria-current={location === path || location.startsWith(`${path}/`) ? "page" : undefined}><Icon size={16} aria-hidden="true" /> <span>{name}</span></Link>
					))}
				</nav>
				<UserMenu />
			</header>
			<main id="main" tabIndex={-1}>{children}</main>
		</div>
	);
}

function WorkspaceMenu() {
	const { me, workspaces, choose } = useSession();
	const current = workspaces.find((w) => w.id === me.workspace_id);
	return (
		<DropdownMenu.Root>
			<DropdownMenu.Trigger className="switcher">
				<span className="visually-hidden">Workspace</span>
				<span className="avatar" aria-hidden="true">{(current?.name ?? "?").slice(0, 1).toUpperCase()}</span>
				<span className="switcher-text"><b>{current?.name ?? "No workspace"}</b><small>{me.role || "no role"}</small></span>
				<ChevronsUpDown size={14} aria-hidden="true" />
			</DropdownMenu.Trigger>
			<DropdownMenu.Portal>
				<DropdownMenu.Content className="menu" align="start" sideOffset={4}>
					<DropdownMenu.Label className="menu-label">Workspaces</DropdownMenu.Label>
					{workspaces.map((w) => (
						<DropdownMenu.Item key={w.id} className="menu-item" onSelect={() => void choose(w.id)}>
							<span className="grow">{w.name}</span><small>{w.role}</small>{w.id === me.workspace_id && <Check size={14} aria-label="chosen" />}
						</DropdownMenu.Item>
					))}
				</DropdownMenu.Content>
			</DropdownMenu.Portal>
		</DropdownMenu.Root>
	);
}

function UserMenu() {
	const { me, signOut } = useSession();
	const [chosen, setChosen] = useState(theme);
	return (
		<DropdownMenu.Root>
			<DropdownMenu.Trigger className="switcher user">
				<span className="avatar round" aria-hidden="true">{me.name.slice(0, 1).toUpperCase()}</span>
				<span className="switcher-text"><b>{me.name}</b><small>{me.token_id ? "by an API token" : me.email || "signed in"}</small></span>
				<span className="visually-hidden">theme and sign-out</span>
				<ChevronsUpDown size={14} aria-hidden="true" />
			</DropdownMenu.Trigger>
			<DropdownMenu.Portal>
				<DropdownMenu.Content className="menu" align="start" sideOffset={4}>
					<DropdownMenu.Label className="menu-label">Theme</DropdownMenu.Label>
					<DropdownMenu.RadioGroup
						value={chosen}
						onValueChange={(v) => {
							applyTheme(v as Theme);
							setChosen(v as Theme);
						}}
					>
						{themes.map((t) => (
							<DropdownMenu.RadioItem key={t.id} value={t.id} className="menu-item">
								{t.icon}<span className="grow">{t.name}</span>
								<DropdownMenu.ItemIndicator><Check size={14} /></DropdownMenu.ItemIndicator>
							</DropdownMenu.RadioItem>
						))}
					</DropdownMenu.RadioGroup>
					<DropdownMenu.Separator className="menu-line" />
					<DropdownMenu.Item className="menu-item" onSelect={signOut}><LogOut size={15} /> Sign out</DropdownMenu.Item>
				</DropdownMenu.Content>
			</DropdownMenu.Portal>
		</DropdownMenu.Root>
	);
}
