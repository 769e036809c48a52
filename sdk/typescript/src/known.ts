import { newError } from "./errors.js";

/** The names of all members of a type. The compiler demands each of them. */
export type Members<T> = { readonly [K in keyof T]-?: true };

/** The members of CallOptions. */
export const callMembers = { signal: true } as const;
/** The members of PageOptions. */
export const pageMembers = { ...callMembers, limit: true, cursor: true } as const;

/**
 * Throws a ValidationError for a member that the type does not have: the member would have no effect, and nobody would notice a
 * misspelled name. Members that are undefined are no error.
 */
export function checkMembers(type: string, given: unknown, known: Readonly<Record<string, true>>): void {
  if (given === undefined || given === null) return;
  if (typeof given !== "object" || Array.isArray(given)) {
    const what = Array.isArray(given) ? "a list" : `a ${typeof given}`;
    throw newError({ code: "invalid", message: `${type} must be an object with named members, not ${what}` });
  }
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || Object.hasOwn(known, name)) continue;
    const meant = closest(name, Object.keys(known));
    const hint = meant === undefined ? `; it has ${Object.keys(known).join(", ")}` : `; did you mean ${JSON.stringify(meant)}?`;
    const message = `${type} has no member ${JSON.stringify(name)}${hint}`;
    throw newError({ code: "invalid", message, fields: [{ field: name, message }] });
  }
}

/** The name that a misspelled name was to be: an equal name in another spelling, or else a name with at most two other characters. */
function closest(name: string, known: readonly string[]): string | undefined {
  const plain = (text: string) => text.replace(/[_-]/g, "").toLowerCase();
  const distances = known.map((k) => ({ k, d: distance(plain(name), plain(k)) })).sort((a, b) => a.d - b.d);
  const [best] = distances;
  return best && best.d <= Math.min(2, Math.floor(best.k.length / 3)) ? best.k : undefined;
}

/** The number of characters to insert, remove or replace that makes a into b. Long names, which nobody meant, are infinitely far. */
function distance(a: string, b: string): number {
  if (a.length > 64) return Infinity;
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (const [i, c] of [...a].entries()) {
    const next = [i + 1];
    for (const [j, d] of [...b].entries()) next.push(Math.min(next[j]! + 1, row[j + 1]! + 1, row[j]! + (c === d ? 0 : 1)));
    row = next;
  }
  return row[b.length]!;
}
