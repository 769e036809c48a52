import { useEffect, useState, useSyncExternalStore } from "react";
import { useSession } from "./session.ts";

/** useNow returns the time, and renders again every so often. */
export function useNow(every = 1000): number {
	const [now, setNow] = useState(Date.now);
	useEffect(() => {
		const timer = setInterval(() => setNow(Date.now()), every);
		return () => clearInterval(timer);
	}, [every]);
	return now;
}

export function useSandboxes() {
	const { store } = useSession();
	return useSyncExternalStore(store.subscribe, store.snapshot);
}

/** useTitle names the page in the browser. */
export function useTitle(title: string) {
	useEffect(() => {
		document.title = `${title} · Modbox`;
	}, [title]);
}

/** useKeys calls a function for each key that is pressed outside of inputs and dialogs. */
export function useKeys(handle: (e: KeyboardEvent) => void) {
	useEffect(() => {
		const listen = (e: KeyboardEvent) => {
			const at = e.target instanceof HTMLElement ? e.target : null;
			if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey) return;
			if (at?.closest("input, textarea, select, [contenteditable], [role=dialog], [role=alertdialog], [role=menu], .shell")) return;
			handle(e);
		};
		document.addEventListener("keydown", listen);
		return () => document.removeEventListener("keydown", listen);
	}, [handle]);
}
