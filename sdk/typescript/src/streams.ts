import { ModboxError, newError } from "./errors.js";
import { callMembers, checkMembers } from "./known.js";
import type { HTTP } from "./http.js";
import { segment } from "./path.js";
import type { CallOptions, FileContent } from "./types.js";
import type * as wire from "./wire.js";

/** The part of a stream to read. */
export interface ReadStreamOptions extends CallOptions {
  /** The byte to begin at; default 0. */
  offset?: number | undefined;
  /** Wait at the end for more, until the stream ends. */
  follow?: boolean | undefined;
  /** Put the time at which it came before every line. */
  timestamps?: boolean | undefined;
}

/** How often in a row a connection may break at once, without a byte, before it is given up. */
const maxFruitless = 3;
/** A connection that held for so long was none that broke at once. */
const heldMs = 10_000;

/** The durable output, and input, of executions. Safe for concurrent use. */
export class Streams {
  constructor(private readonly http: HTTP) {}

  /**
   * Reads a stream while it grows and afterwards, in bytes as they come. When the
   * connection breaks it goes on where it was; with `timestamps`, whose bytes
   * `offset` does not count, it throws instead. Leaving the loop has no effect on the command.
   */
  async *read(id: string, options: ReadStreamOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    let offset = options.offset ?? 0;
    for (let fruitless = 0; ; ) {
      const began = Date.now();
      const from = offset;
      const response = await this.http.raw({
        method: "GET",
        path: streamPath(id),
        query: { offset: offset || undefined, follow: options.follow, timestamps: options.timestamps },
        signal: options.signal,
        repeatable: true,
      });
      try {
        for await (const chunk of chunksOf(response, options.signal)) {
          offset += chunk.length;
          yield chunk;
        }
        return;
      } catch (err) {
        if (!(err instanceof ModboxError) || err.code !== "connection" || options.timestamps) throw err;
        fruitless = offset > from || Date.now() - began > heldMs ? 0 : fruitless + 1;
        if (fruitless > maxFruitless) throw err;
      }
    }
  }

  /** Makes an input stream, for `stdinStreamId` of a command that is to come, and returns its id. */
  async create(options: CallOptions = {}): Promise<string> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Stream>({ method: "POST", path: "/v1/streams", signal: options.signal, repeatable: true });
    return w.id;
  }

  /** Adds content of any size to an input stream as it comes, and with `end` (default true) ends it. Never sent twice. */
  async write(id: string, content: FileContent, options: CallOptions & { end?: boolean | undefined } = {}): Promise<void> {
    const response = await this.http.raw({
      method: "PUT",
      path: streamPath(id),
      query: { eof: options.end },
      headers: { "content-type": "application/octet-stream" },
      body: content,
      signal: options.signal,
      timeoutMs: 0,
      repeatable: false,
    });
    await response.arrayBuffer();
  }
}

function streamPath(id: string): string {
  return `/v1/streams/${segment(id)}`;
}

/** Gives a body's chunks; that it breaks off is an error of ours. */
async function* chunksOf(response: Response, signal?: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  try {
    for (;;) {
      let chunk;
      try {
        chunk = await reader.read();
      } catch (err) {
        if (signal?.aborted) throw err;
        throw newError({ code: "connection", message: "the connection broke before the stream's end", cause: err });
      }
      if (chunk.done) return;
      yield chunk.value;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
