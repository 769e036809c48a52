import { fromBase64 } from "./base64.js";
import * as schemas from "./schemas.js";
import type { SandboxEvent } from "./schemas.js";
import type * as wire from "./wire.js";

/** The difference between the clocks of the server and the receiver that is permitted. */
const toleranceSeconds = 300;

/** A delivery as the receiver gets it. */
export interface WebhookMessage {
  /** The same when a delivery comes again; ignore the ids that you know. */
  id: string;
  /** The type of the event; `ping` for a test. */
  type: string;
  /** The time of the event. */
  timestamp: string;
  /** The event; undefined for a test. */
  event: SandboxEvent | undefined;
}

/** The request is not a valid delivery of a webhook: answer it with status 401. */
export class WebhookError extends Error {
  override readonly name = "WebhookError";
}

/** The headers of a request, as `fetch` or Node have them. */
export type WebhookHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * Checks the signature and the time of a delivery, and returns its content. Pass the body exactly as it came. Several
 * secrets may be valid, during a rotation. Throws `WebhookError` for every other request, and TypeError for a secret
 * that is not one of a webhook. Signatures follow the Standard Webhooks scheme, v1.
 */
export async function verifyWebhook(headers: WebhookHeaders, body: string | Uint8Array, secrets: string | readonly string[]): Promise<WebhookMessage> {
  const [id, stamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => header(headers, name));
  if (!id || !stamp || !signatures) throw new WebhookError("the header webhook-id, webhook-timestamp or webhook-signature is missing");
  if (!/^\d{1,12}$/.test(stamp)) throw new WebhookError("webhook-timestamp is not a number");
  if (Math.abs(Date.now() / 1_000 - Number(stamp)) > toleranceSeconds) {
    throw new WebhookError(`webhook-timestamp is more than ${toleranceSeconds} seconds from this machine's time`);
  }
  const text = new TextEncoder();
  const bytes = typeof body === "string" ? text.encode(body) : body;
  const begin = text.encode(`${id}.${stamp}.`);
  const signed = new Uint8Array(begin.length + bytes.length);
  signed.set(begin);
  signed.set(bytes, begin.length);
  const { subtle } = await webCrypto();
  for (const secret of typeof secrets === "string" ? [secrets] : secrets) {
    const key = await subtle.importKey("raw", secretKey(secret), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    for (const signature of signatures.split(" ")) {
      const found = /^v1,([A-Za-z0-9+/]{43}=)$/.exec(signature)?.[1];
      // verify compares in constant time.
      if (found !== undefined && (await subtle.verify("HMAC", key, fromBase64(found), signed))) return content(id, bytes);
    }
  }
  throw new WebhookError("no signature is by this secret");
}

function header(headers: WebhookHeaders, name: string): string | undefined {
  if (typeof headers.get === "function") return (headers as Headers).get(name) ?? undefined;
  const value: unknown = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  return typeof value === "string" ? value : undefined;
}

function secretKey(secret: string): Uint8Array<ArrayBuffer> {
  try {
    const key = fromBase64(secret.replace(/^whsec_/, ""));
    if (key.length > 0) return key;
  } catch {
    // The text of the error has the secret.
  }
  throw new TypeError("a secret is not one of a webhook: whsec_ and base64");
}

function content(id: string, body: Uint8Array): WebhookMessage {
  try {
    const w = JSON.parse(new TextDecoder().decode(body)) as { type: string; timestamp: string; data: wire.Event | Record<string, never> };
    return { id, type: w.type, timestamp: w.timestamp, event: "seq" in w.data ? schemas.event(w.data as wire.Event) : undefined };
  } catch (err) {
    throw new WebhookError("the body is not an event", { cause: err });
  }
}

/** Node 18 has no global crypto. */
async function webCrypto(): Promise<Pick<Crypto, "subtle">> {
  const found = globalThis.crypto as Crypto | undefined;
  if (found?.subtle !== undefined) return found;
  const name: string = "node:crypto"; // a variable, so that bundlers for browsers do not look for it
  return ((await import(name)) as { webcrypto: Crypto }).webcrypto;
}
