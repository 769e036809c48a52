import { setTimer, sleepUntil } from "./pause.js";
import * as schemas from "./schemas.js";
import { ModboxError, newError, type ErrorCode } from "./errors.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers, pageMembers, type Members } from "./known.js";
import { pages, type PagePromise } from "./page.js";
import { readMessages, type Message } from "./sse.js";
import type { PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { SandboxEvent } from "./schemas.js";

/** Which events; the empty object is all of the workspace. */
export interface EventFilter {
  /** Only events of this sandbox: its id or name. */
  sandbox?: string | undefined;
  /** Only events of these types, such as `created`. */
  types?: readonly string[] | undefined;
  since?: Date | string | undefined;
}

export interface ListEventsOptions extends EventFilter, PageOptions {
  until?: Date | string | undefined;
  /** Only events with a greater `seq`. */
  afterSeq?: number | undefined;
  /** Default `asc`, the oldest first. */
  order?: "asc" | "desc" | undefined;
}

/** Where a stream begins: after `afterSeq`, else with the first event after `since`, else with the next event to come. */
export interface FollowEventsOptions extends EventFilter {
  /** The `seq` of the last event that the program has seen. */
  afterSeq?: number | undefined;
  signal?: AbortSignal | undefined;
}

const filterMembers: Members<EventFilter> = { sandbox: true, types: true, since: true };
const listMembers: Members<ListEventsOptions> = { ...filterMembers, ...pageMembers, until: true, afterSeq: true, order: true };
const followMembers: Members<FollowEventsOptions> = { ...filterMembers, ...callMembers, afterSeq: true };

/** The server sends something every 15 seconds; after this silence the stream connects again. */
const silenceMs = 60_000;
const firstPauseMs = 200;
const maxPauseMs = 15_000;

/** The events of all sandboxes of the workspace. Safe for concurrent use. */
export class Events {
  constructor(private readonly http: HTTP) {}

  /** Lists events, the oldest first. */
  list(options: ListEventsOptions = {}): PagePromise<SandboxEvent> {
    const { sandbox, types, since, until, afterSeq, order } = options;
    const query = { sandbox, type: types, since: instant(since), until: instant(until), after_seq: afterSeq, order };
    return pages(this.http, options, () => ({ path: "/v1/events", query }), schemas.event, listMembers);
  }

  /**
   * Gives events as they happen, without end. When the connection breaks or the server restarts, it connects again and
   * goes on after the last event: none is missing and none comes twice. Leaving the loop ends the stream; `signal` does
   * too, with its reason thrown. Throws when the first connection cannot be made, and when the token loses its rights.
   */
  async *follow(options: FollowEventsOptions = {}): AsyncGenerator<SandboxEvent, void, undefined> {
    checkMembers("FollowEventsOptions", options, followMembers);
    const at: Position = { last: options.afterSeq === undefined ? undefined : String(options.afterSeq), known: false };
    for (let pause = firstPauseMs; ; pause = Math.min(2 * pause, maxPauseMs)) {
      const before = at.last;
      let retryAfterMs = 0;
      try {
        yield* this.connection(options, at);
      } catch (err) {
        if (options.signal?.aborted || !at.known || !mayPass(err)) throw err;
        retryAfterMs = 1_000 * ((err as ModboxError).retryAfterSeconds ?? 0);
      }
      if (at.last !== before) pause = firstPauseMs;
      await sleepUntil(Math.max(retryAfterMs, pause * (0.5 + Math.random() / 2)), options.signal);
    }
  }

  /** The events of one connection. */
  private async *connection(options: FollowEventsOptions, at: Position): AsyncGenerator<SandboxEvent, void, undefined> {
    const abort = new AbortController();
    const forward = (): void => abort.abort(options.signal?.reason);
    if (options.signal?.aborted) forward();
    else options.signal?.addEventListener("abort", forward, { once: true });
    const silence = setTimer(silenceMs, () => abort.abort());
    try {
      const response = await this.http.raw({
        method: "GET",
        path: "/v1/events/stream",
        query: { sandbox: options.sandbox, type: options.types, since: instant(options.since) },
        headers: at.last === undefined ? {} : { "last-event-id": at.last },
        signal: abort.signal,
        repeatable: !at.known,
      });
      at.known = true;
      for await (const message of readMessages(response.body ?? new Blob([]).stream())) {
        silence.restart();
        const event = read(message);
        if (message.id !== undefined) at.last = message.id;
        if (event !== undefined) yield event;
      }
    } catch (err) {
      if (options.signal?.aborted) throw options.signal.reason;
      if (err instanceof ModboxError) throw err;
      throw newError({ code: "connection", message: "the connection broke while events were read", cause: err });
    } finally {
      silence.stop();
      options.signal?.removeEventListener("abort", forward);
      abort.abort();
    }
  }
}

/** How far a stream has come. */
interface Position {
  last: string | undefined;
  /** Whether the server has answered. */
  known: boolean;
}

/** Returns the event of a message; undefined when it has none. */
function read(message: Message): SandboxEvent | undefined {
  if (message.event === "problem") {
    const w = JSON.parse(message.data) as wire.Problem;
    throw newError({ code: w.code as ErrorCode, message: w.detail ?? "the server gave no reason" });
  }
  if (message.event !== undefined || message.data === "") return undefined;
  return schemas.event(JSON.parse(message.data) as wire.Event);
}

function mayPass(err: unknown): boolean {
  return err instanceof ModboxError && ["connection", "timeout", "unavailable", "quota_exceeded", "internal"].includes(err.code);
}

function instant(at: Date | string | undefined): string | undefined {
  return at instanceof Date ? at.toISOString() : at;
}
