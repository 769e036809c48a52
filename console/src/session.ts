// Who is signed in, and in which workspace: for all components below App.
import { createContext, useContext } from "react";
import type { Whoami, Workspace } from "./api.ts";
import type { SandboxStore } from "./store.ts";

/** Source is what a new sandbox is made from. */
export interface Source {
	image?: string;
	snapshot?: string;
}

export interface Session {
	me: Whoami;
	workspaces: Workspace[];
	store: SandboxStore;
	/** Whether the user may create, use and destroy sandboxes. */
	mayWrite: boolean;
	/** choose enters another workspace, and returns when it is shown. */
	choose: (workspace: string) => Promise<void>;
	/** reenter asks the server again who is signed in, with which role and workspaces. */
	reenter: () => Promise<void>;
	signOut: () => void;
	/** say shows a message for some seconds. */
	say: (text: string, bad?: boolean) => void;
	/** create opens the dialog for a new sandbox. */
	create: () => void;
	/** createFrom opens it for a sandbox from that image or snapshot. */
	createFrom: (source: Source) => void;
}

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
	const session = useContext(SessionContext);
	if (!session) throw new Error("no session");
	return session;
}

const forgetting = new Set<() => void>();

/** atSignOut registers a call that drops what a page keeps for its user. */
export const atSignOut = (call: () => void) => void forgetting.add(call);

const tabs = new BroadcastChannel("modbox.sign-out");

function forgetHere() {
	for (const call of forgetting) call();
	sessionStorage.clear();
}

/** Word is what a tab tells the others: that the user has signed out, or who is signed in. */
type Word = { out: true } | { user: string };

/** forget drops all that the pages keep for the user in this browser tab, and in all others. */
export function forget() {
	forgetHere();
	tabs.postMessage({ out: true } satisfies Word);
}

let user = "";

/** signedIn drops what the pages keep for another user, whose session ended, here and in the other tabs: they all have the session of the last sign-in. */
export function signedIn(id: string) {
	if (user && user !== id) forgetHere();
	user = id;
	tabs.postMessage({ user: id } satisfies Word);
}

/** afterOthers calls functions when the user has signed out in another tab, and when another user has signed in there, until the returned function is called. */
export function afterOthers(out: () => void, other: () => void): () => void {
	const listen = ({ data }: MessageEvent<Word>) => {
		if ("out" in data) {
			forgetHere();
			out();
		} else if (user && data.user !== user) {
			forgetHere();
			other();
		}
	};
	tabs.addEventListener("message", listen);
	return () => tabs.removeEventListener("message", listen);
}

/** useMay returns whether the caller has a permission in the workspace. */
export function useMay(): (permission: string) => boolean {
	const { permissions } = useSession().me;
	return (permission) => permissions?.includes(permission) ?? false;
}
