import { Lock } from "lucide-react";
import { Suspense, useCallback, useEffect, useLayoutEffect, useMemo, useState } from "react";
import { Route, Switch, useLocation } from "wouter";
import { ApiError, actIn, api, message, whenSignedOut, type Whoami, type Workspace } from "./api.ts";
import { PageBoundary } from "./boundary.tsx";
import { CreateDialog } from "./create.tsx";
import { Frame } from "./frame.tsx";
import { Palette } from "./palette.tsx";
import { ListPage } from "./pages/list.tsx";
import { NotFoundPage } from "./pages/notfound.tsx";
import { SandboxPage } from "./pages/sandbox.tsx";
import { SignInPage } from "./pages/signin.tsx";
import { places } from "./places.ts";
import { Empty, Skeleton } from "./parts.tsx";
import { afterOthers, forget, SessionContext, type Session, signedIn, type Source } from "./session.ts";
import { SandboxStore } from "./store.ts";

const workspaceKey = "modbox.workspace";

type Phase = { name: "loading" } | { name: "failed"; error: string } | { name: "out"; ended: boolean } | { name: "in"; me: Whoami; workspaces: Workspace[] };

/** enter returns who is signed in, in the workspace chosen before if the user is still a member. */
async function enter(): Promise<Phase> {
	actIn("");
	const me = await api.session();
	if (!me) return { name: "out", ended: false };
	const workspaces = await api.workspaces();
	const chosen = localStorage.getItem(workspaceKey) ?? "";
	if (chosen === me.workspace_id || !workspaces.some((w) => w.id === chosen)) return { name: "in", me, workspaces };
	actIn(chosen);
	try {
		return { name: "in", me: await api.whoami(), workspaces };
	} catch (err) {
		if (!(err instanceof ApiError && err.status === 404)) throw err;
		actIn("");
		return { name: "in", me, workspaces };
	}
}

export function App() {
	const [phase, setPhase] = useState<Phase>({ name: "loading" });
	const load = useCallback(() => {
		return enter().then((now) => {
			if (now.name === "in") signedIn(now.me.user_id);
			setPhase(now);
		}, (err: unknown) => setPhase({ name: "failed", error: message(err) }));
	}, []);
	useEffect(() => {
		whenSignedOut(() => setPhase((was) => (was.name === "out" ? was : { name: "out", ended: true })));
		void load();
		return afterOthers(() => setPhase({ name: "out", ended: false }), () => void load());
	}, [load]);
	switch (phase.name) {
		case "loading":
			return <main className="blank" aria-busy="true"><p className="visually-hidden">Loading</p></main>;
		case "failed":
			return (
				<main className="blank">
					<div className="empty">
						<h1>The console cannot start</h1>
						<p>{phase.error}</p>
						<button type="button" className="button" onClick={() => void load()}>Try again</button>
					</div>
				</main>
			);
		case "out":
			return <SignInPage ended={phase.ended} onDone={() => void load()} />;
		case "in":
			return (
				<Inside
					key={`${phase.me.user_id} ${phase.me.workspace_id}`} me={phase.me} workspaces={phase.workspaces}
					choose={(id) => {
						localStorage.setItem(workspaceKey, id);
						return load();
					}}
					reenter={load}
					out={() => setPhase({ name: "out", ended: false })}
				/>
			);
	}
}

interface Toast {
	text: string;
	bad: boolean;
}

/** Inside is the console of a signed-in user in one workspace. */
function Inside({ me, workspaces, choose, reenter, out }: { me: Whoami; workspaces: Workspace[]; choose: (id: string) => Promise<void>; reenter: () => Promise<void>; out: () => void }) {
	const [store] = useState(() => new SandboxStore());
	const mayRead = me.permissions?.includes("sandboxes:read") ?? false;
	const mayWrite = me.permissions?.includes("sandboxes:write") ?? false;
	const [creating, setCreating] = useState<Source | null>(null);
	const [palette, setPalette] = useState(false);
	const [toast, setToast] = useState<Toast | null>(null);
	const [location, navigate] = useLocation();
	useEffect(() => (mayRead ? store.start() : undefined), [store, mayRead]);
	useEffect(() => {
		if (!toast) return;
		const timer = setTimeout(() => setToast(null), toast.bad ? 15_000 : 8000);
		return () => clearTimeout(timer);
	}, [toast]);
	useLayoutEffect(() => {
		const listen = (e: KeyboardEvent) => {
			if ((e.metaKey || e.ctrlKey) && e.key.toLowerCase() === "k") {
				e.preventDefault();
				setPalette((was) => !was);
			}
		};
		document.addEventListener("keydown", listen);
		return () => document.removeEventListener("keydown", listen);
	}, []);
	const session = useMemo<Session>(() => ({
		me, workspaces, store, mayWrite, choose, reenter,
		create: () => setCreating({}),
		createFrom: setCreating,
		say: (text, bad = false) => setToast({ text, bad }),
		signOut: () => {
			api.signOut().then(() => {
				forget();
				out();
			}, (err: unknown) => setToast({ text: `You are still signed in: ${message(err)}`, bad: true }));
		},
	}), [me, workspaces, store, mayWrite, choose, reenter, out]);
	return (
		<SessionContext value={session}>
			<Frame onPalette={() => setPalette(true)}>
				<PageBoundary at={location}><Switch>
					<Route path="/">{mayRead ? <ListPage /> : <NoRights />}</Route>
					<Route path="/sandboxes/:id/:tab?">{(p) => <SandboxPage key={p.id} id={p.id} tab={p.tab ?? "overview"} />}</Route>
					{places.map(({ path, name, needs, Page }) => (
						<Route key={path} path={`${path}/:part?`}>
							{(p: { part?: string }) => me.permissions?.includes(needs)
								? <Suspense fallback={<Skeleton label={`Loading ${name}`} />}><Page part={p.part ?? ""} /></Suspense>
								: <NotPermitted needs={needs} />}
						</Route>
					))}
					<Route><NotFoundPage /></Route>
				</Switch></PageBoundary>
			</Frame>
			{mayWrite && (
				<CreateDialog
					source={creating} onClose={() => setCreating(null)}
					onCreated={(sb) => {
						setCreating(null);
						store.put(sb);
						navigate(`/sandboxes/${sb.id}`);
					}}
				/>
			)}
			<Palette open={palette} onClose={() => setPalette(false)} />
			<div role="status" className="toasts">{toast && <p className="toast" data-bad={toast.bad}>{toast.text}</p>}</div>
		</SessionContext>
	);
}

function NotPermitted({ needs }: { needs: string }) {
	return <Empty icon={<Lock size={22} />} title="This page is closed to you" text={needs === "admin" ? <>It is for administrators of the server: you, or the token that you signed in with, lack the permission <code>admin</code>, which no role in a workspace has.</> : <>Your role in this workspace, or the token that you signed in with, lacks the permission <code>{needs}</code>. Ask an owner or admin of the workspace for another role.</>} />;
}

function NoRights() {
	return (
		<div className="empty">
			<h2>Nothing to see here</h2>
			<p>The token that you signed in with has no permission to read sandboxes (<code>sandboxes:read</code>), or you are a member of no workspace. Sign in with another token, or ask to be added to a workspace.</p>
		</div>
	);
}
