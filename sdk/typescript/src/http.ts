import { backOff } from "exponential-backoff";
import type { Credentials } from "./credentials.js";
import type { WebSocketConstructor, WebSocketLike } from "./session.js";
import { ModboxError, errorFromResponse, newError } from "./errors.js";

/** Where and how requests are sent. */
export interface HTTPOptions {
  baseUrl: string;
  credentials: Credentials;
  workspaceId: string | undefined;
  timeoutMs: number;
  maxRetries: number;
  fetch: typeof globalThis.fetch;
  WebSocket: WebSocketConstructor | undefined;
}

/** One request. */
export interface HTTPRequest {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: Record<string, string | number | boolean | readonly string[] | undefined>;
  /** Sent as JSON; without members that are undefined. */
  json?: unknown;
  /** Sent as it is, instead of json. */
  body?: BodyInit;
  headers?: Record<string, string>;
  /** Made in nobody's name. */
  anonymous?: boolean;
  signal?: AbortSignal | undefined;
  /** Milliseconds until the request is given up; 0 is never. Default: the client's. */
  timeoutMs?: number | undefined;
  /** Called with the HTTP status of a success. */
  onStatus?: ((status: number) => void) | undefined;
  /** Whether sending it twice has the effect of sending it once; only then it is tried again. */
  repeatable: boolean;
}

const firstDelayMs = 100;
const maxDelayMs = 2_000;
const maxRetryAfterMs = 30_000;

/** Sends requests; safe for concurrent use. */
export class HTTP {
  constructor(private readonly options: HTTPOptions) {}

  /** Sends the request and reads the JSON answer. The time limit covers both. */
  async json<T>(request: HTTPRequest): Promise<T> {
    return this.send(request, async (response, limit) => {
      try {
        return (await response.json()) as T;
      } catch (err) {
        if (!(err instanceof SyntaxError)) throw err;
        throw newError({ code: "bad_response", message: `${describe(request)}: the answer is not JSON`, status: response.status, cause: err });
      } finally {
        limit.release();
      }
    });
  }

  /** Sends the request and returns the answer unread. The time limit ends with the answer's head. */
  async raw(request: HTTPRequest): Promise<Response> {
    return this.send(request, (response) => Promise.resolve(response));
  }

  /** Sends a request whose answer says nothing but that it is done. */
  async done(request: HTTPRequest): Promise<void> {
    const response = await this.raw(request);
    await response.arrayBuffer();
  }

  /** Begins a WebSocket with the headers. */
  webSocket(path: string, headers: Record<string, string>): WebSocketLike {
    const WebSocket = this.options.WebSocket ?? (globalThis as { WebSocket?: unknown }).WebSocket as WebSocketConstructor | undefined;
    if (WebSocket === undefined) {
      throw newError({ code: "unsupported", message: "this runtime has no WebSocket: pass { WebSocket }, such as that of the package ws" });
    }
    return new WebSocket(this.options.baseUrl.replace(/^http/, "ws") + path, { headers });
  }

  private async send<T>(request: HTTPRequest, read: (response: Response, limit: Limit) => Promise<T>): Promise<T> {
    // Not within the tries: it may renew a session, which is never done twice.
    const headers = await this.headers(request.anonymous);
    let retryAfterMs = 0;
    const once = async (): Promise<T> => {
      const limit = new Limit(request.signal, request.timeoutMs ?? this.options.timeoutMs);
      try {
        const response = await this.options.fetch(this.url(request), this.init(request, headers, limit.signal));
        if (response.ok) {
          request.onStatus?.(response.status);
          return await read(response, limit);
        }
        const error = await errorFromResponse(response);
        retryAfterMs = (error.retryAfterSeconds ?? 0) * 1_000;
        throw error;
      } catch (err) {
        limit.release();
        throw this.explain(err, request, limit);
      } finally {
        limit.stop();
      }
    };
    if (!request.repeatable || this.options.maxRetries === 0) return once();
    return backOff(once, {
      numOfAttempts: this.options.maxRetries + 1,
      startingDelay: firstDelayMs,
      maxDelay: maxDelayMs,
      jitter: "full",
      retry: async (err: unknown) => {
        if (request.signal?.aborted || !isTemporary(err)) return false;
        await sleep(Math.min(retryAfterMs, maxRetryAfterMs));
        return true;
      },
    });
  }

  /** Turns what fetch throws into an error of ours; an abort by the caller stays what it is. */
  private explain(err: unknown, request: HTTPRequest, limit: Limit): unknown {
    if (err instanceof ModboxError || request.signal?.aborted) return err;
    if (limit.passed) {
      return newError({ code: "timeout", message: `${describe(request)}: no answer within ${limit.timeoutMs} ms`, cause: err });
    }
    return newError({ code: "connection", message: `${describe(request)} at ${this.options.baseUrl}: ${reason(err)}`, cause: err });
  }

  private url(request: HTTPRequest): string {
    const url = new URL(this.options.baseUrl + request.path);
    for (const [key, value] of Object.entries(request.query ?? {})) {
      if (value === undefined) continue;
      for (const one of Array.isArray(value) ? value : [value]) url.searchParams.append(key, String(one));
    }
    return url.href;
  }

  /** The whole address of a path of the server. */
  address(path: string): string {
    return this.options.baseUrl + path;
  }

  /** The headers of every request that is made now. */
  async headers(anonymous = false): Promise<Record<string, string>> {
    const headers: Record<string, string> = {};
    if (anonymous) return headers;
    const token = await this.options.credentials.token(this);
    if (token !== undefined) headers.authorization = `Bearer ${token}`;
    if (this.options.workspaceId !== undefined) headers["x-workspace-id"] = this.options.workspaceId;
    return headers;
  }

  private init(request: HTTPRequest, common: Record<string, string>, signal: AbortSignal): RequestInit {
    const headers: Record<string, string> = { ...common, ...request.headers };
    const init: RequestInit & { duplex?: "half" } = { method: request.method, headers, signal, redirect: "error" };
    if (request.json !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(request.json);
    } else if (request.body !== undefined) {
      init.body = request.body;
      // fetch refuses a stream as body without it; lib.dom does not know it yet.
      if (request.body instanceof ReadableStream) init.duplex = "half";
    }
    return init;
  }
}

/**
 * Joins the caller's signal with a time limit. AbortSignal.any would do, but Node 18 lacks it.
 * The caller's signal stays connected until release, so that aborting it ends a body that is still being read.
 */
class Limit {
  passed = false;
  readonly signal: AbortSignal;
  private readonly controller = new AbortController();
  private readonly timer: ReturnType<typeof setTimeout> | undefined;
  private readonly forward = () => this.controller.abort(this.outer?.reason);

  constructor(
    private readonly outer: AbortSignal | undefined,
    readonly timeoutMs: number,
  ) {
    this.signal = this.controller.signal;
    if (outer?.aborted) this.forward();
    else outer?.addEventListener("abort", this.forward, { once: true });
    if (timeoutMs > 0) {
      this.timer = setTimeout(() => {
        this.passed = true;
        this.controller.abort();
      }, timeoutMs);
    }
  }

  /** Ends the time limit. */
  stop(): void {
    clearTimeout(this.timer);
  }

  /** Disconnects the caller's signal. */
  release(): void {
    this.outer?.removeEventListener("abort", this.forward);
  }
}

function isTemporary(err: unknown): boolean {
  return err instanceof ModboxError && (err.code === "connection" || err.code === "unavailable");
}

function describe(request: HTTPRequest): string {
  return `${request.method} ${request.path}`;
}

/** fetch says only "fetch failed" and keeps the reason in its cause. */
function reason(err: unknown): string {
  const inner = err instanceof Error && err.cause instanceof Error ? err.cause : err;
  return inner instanceof Error ? inner.message || inner.name : String(inner);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
