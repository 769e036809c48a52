// Parts of the pages that are loaded when they are shown.
import { type ComponentType, createElement, type FunctionComponent, lazy } from "react";

const failed = new Set<() => void>();

/** late returns a component that is loaded when it is shown. After it could not be loaded, it fails until importAgain. */
export function late<P extends object>(load: () => Promise<{ default: ComponentType<P> }>): FunctionComponent<P> {
	const make = (from: () => Promise<{ default: ComponentType<P> }>) => lazy(() => from().catch((err: unknown) => {
		failed.add(() => (Part = make(() => load().catch(() => elsewhere<P>(err)))));
		throw err;
	}));
	let Part = make(load);
	return (props: P) => createElement(Part as ComponentType<P>, props);
}

/** elsewhere imports the file that an error names by another address: a browser may keep the failure of an address for ever. */
function elsewhere<P>(err: unknown): Promise<{ default: ComponentType<P> }> {
	const url = /https?:\S+\.js/.exec(String(err))?.[0];
	if (!url || new URL(url).origin !== location.origin) throw err;
	return import(/* @vite-ignore */ `${url}?again=${Date.now()}`) as Promise<{ default: ComponentType<P> }>;
}

/** importAgain has what could not be loaded be loaded when it is shown again. */
export function importAgain() {
	for (const remake of failed) remake();
	failed.clear();
}
