import { useCallback, useEffect, useLayoutEffect, useRef, useState, useSyncExternalStore } from "react";
import { message } from "./api.ts";
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

/** useKeys calls a function for each key that is pressed outside of inputs and dialogs, as soon as the page is shown. */
export function useKeys(handle: (e: KeyboardEvent) => void) {
	useLayoutEffect(() => {
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

/** useCurrentInView keeps the current item of a row that scrolls in view: when it changes, and when the window does. */
export function useCurrentInView<T extends HTMLElement>(current: string) {
	const row = useRef<T>(null);
	useEffect(() => {
		const show = () => row.current?.querySelector("[aria-current], [data-state=active]")?.scrollIntoView({ inline: "center", block: "nearest" });
		show();
		addEventListener("resize", show);
		return () => removeEventListener("resize", show);
	}, [current]);
	return row;
}

export interface Loaded<T> {
	/** What was read last; undefined until then. */
	data: T | undefined;
	error: string;
	reload: () => void;
	set: (data: T) => void;
}

/** stops tells that the user stopped waiting for a call: it may have changed what is shown. */
export const stops = new EventTarget();

/** useLoad reads something when it is shown, when the function changes, on request, and, unless it is fixed, when the user stopped waiting for a call. */
export function useLoad<T>(read: (signal: AbortSignal) => Promise<T>, fixed = false): Loaded<T> {
	const [state, setState] = useState<{ data: T | undefined; error: string }>({ data: undefined, error: "" });
	const [turn, setTurn] = useState(0);
	useEffect(() => {
		const reading = new AbortController();
		read(reading.signal).then(
			(data) => !reading.signal.aborted && setState({ data, error: "" }),
			(err: unknown) => !reading.signal.aborted && setState((was) => ({ data: was.data, error: message(err) })),
		);
		return () => reading.abort();
	}, [read, turn]);
	const reload = useCallback(() => setTurn((n) => n + 1), []);
	useEffect(() => {
		if (fixed) return;
		stops.addEventListener("stop", reload);
		return () => stops.removeEventListener("stop", reload);
	}, [fixed, reload]);
	const set = useCallback((data: T) => setState({ data, error: "" }), []);
	return { ...state, reload, set };
}

/** useAct returns a function that makes a call, tells its error, and whether one is under way. */
export function useAct() {
	const { say } = useSession();
	const [busy, setBusy] = useState(false);
	const act = useCallback(async (call: () => Promise<unknown>, done?: string) => {
		setBusy(true);
		try {
			await call();
			if (done) say(done);
			return true;
		} catch (err) {
			say(message(err), true);
			return false;
		} finally {
			setBusy(false);
		}
	}, [say]);
	return { act, busy };
}
