import { newError } from "./errors.js";

/** A path segment for an id or a name, which may hold any character. */
export function segment(value: string): string {
  // URLs have no way to say these: "." and ".." are resolved even when they are encoded.
  if (value === "" || value === "." || value === "..") {
    throw newError({ code: "invalid", message: `"${value}" is not the id or name of anything` });
  }
  return encodeURIComponent(value);
}

/** The path of a sandbox, or of something below it. */
export function sandboxPath(ref: string, call = ""): string {
  return `/v1/sandboxes/${segment(ref)}${call}`;
}
