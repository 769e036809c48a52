// Errors of forms: each is shown once, at the field that it names, or else below the form.
import { useEffect, useRef, useState } from "react";
import { ApiError, message } from "./api.ts";

const isIn = (part: string, field: string) => part === field || part.startsWith(`${field}.`) || part.startsWith(`${field}[`);

export interface Faults {
	/** fault returns the mistake in one of some fields, which the caller shows. */
	fault: (...fields: string[]) => string | undefined;
	/** rest returns what is left of the error after all calls of fault. */
	rest: () => string | undefined;
}

/** FormError shows what no field of a form shows. It is rendered after the form has asked about all its fields. */
export function FormError({ rest }: Pick<Faults, "rest">) {
	const text = rest();
	return text && <p role="alert" className="alert">{text}</p>;
}

/** faultsOf divides an error among the fields of a form, once for each time it is rendered. wrong has the mistakes that the form found itself. */
function faultsOf(error: unknown, wrong: Record<string, string> = {}): Faults {
	const named = error instanceof ApiError ? Object.entries(error.fields) : [];
	const shown = new Set<string>();
	return {
		fault: (...fields) => {
			const found = named.filter(([part]) => fields.some((f) => isIn(part, f)));
			for (const [part] of found) shown.add(part);
			return fields.map((f) => wrong[f]).find(Boolean) ?? found[0]?.[1];
		},
		rest: () => {
			if (error === undefined) return undefined;
			const left = named.filter(([part]) => !shown.has(part));
			if (left.length === named.length) return message(error); // it names no field of the form
			return left.map(([part, text]) => `${part}: ${text}`).join(" ") || undefined;
		},
	};
}

/** useFaults keeps why a form was refused, and leads the keyboard to the first field with a mistake. */
export function useFaults(wrong?: Record<string, string>) {
	const [error, setError] = useState<unknown>();
	const form = useRef<HTMLFormElement>(null);
	useEffect(() => {
		if (error !== undefined) form.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
	}, [error]);
	return { form, setError, ...faultsOf(error, wrong) };
}
