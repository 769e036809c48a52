import { toBase64 } from "./base64.js";
import * as schemas from "./schemas.js";
import { newError } from "./errors.js";
import { callMembers, checkMembers, type Members } from "./known.js";
import type { HTTP } from "./http.js";
import { maxWaitSeconds, waitSlackMs } from "./limits.js";
import { pages, type PagePromise } from "./page.js";
import { sandboxPath, segment } from "./path.js";
import { connect, type Session } from "./session.js";
import type { ReadStreamOptions, Streams } from "./streams.js";
import type { CallOptions, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { CommandOptions, Execution, ExecutionOptions } from "./schemas.js";

/** A command that outlives its request. Its input comes by a stream, not as text. */
export type ExecutionCommand = Omit<CommandOptions, "stdin"> & ExecutionOptions;

export interface StartExecutionOptions extends ExecutionCommand, CallOptions {
  /** Answer only when it has ended, or after this many seconds (at most 240); without it as soon as it has started. */
  waitSeconds?: number | undefined;
}

export interface LogsOptions extends ReadStreamOptions {
  /** Default `stdout`, which is both for a terminal and when they are `combined`. */
  output?: "stdout" | "stderr" | undefined;
}

const { stdin: _text, ...command } = schemas.commandOptionsMembers;
export const executionCommandMembers: Members<ExecutionCommand> = { ...command, ...schemas.executionOptionsMembers };
const startMembers: Members<StartExecutionOptions> = { ...executionCommandMembers, ...callMembers, waitSeconds: true };

/**
 * Commands that go on when this client or the server ends. The server keeps them
 * with their output after their end. Safe for concurrent use.
 */
export class Executions {
  constructor(
    private readonly http: HTTP,
    private readonly streams: Streams,
  ) {}

  /** Starts a command. If the command cannot be started, the execution is `failed`. Never sent twice. */
  async start(ref: string, options: StartExecutionOptions): Promise<Execution> {
    checkMembers("StartExecutionOptions", options, startMembers);
    const json: wire.StartExecution = { ...encodeExecution(options), wait_seconds: options.waitSeconds };
    const w = await this.http.json<wire.Execution>({
      method: "POST",
      path: sandboxPath(ref, "/executions"),
      json,
      signal: options.signal,
      timeoutMs: options.waitSeconds ? options.waitSeconds * 1_000 + waitSlackMs : undefined,
      repeatable: false,
    });
    return schemas.execution(w);
  }

  /** Lists the executions of a sandbox, newest first. */
  list(ref: string, options: PageOptions & { kind?: "exec" | "job" | "main" | undefined } = {}): PagePromise<Execution> {
    const { kind } = options;
    return pages(this.http, options, () => ({ path: sandboxPath(ref, "/executions"), query: { kind } }), schemas.execution, { kind: true });
  }

  async get(id: string, options: CallOptions = {}): Promise<Execution> {
    checkMembers("CallOptions", options, callMembers);
    return this.fetch(id, options.signal);
  }

  /**
   * Returns when the execution has ended, in whatever way: look at `state`. Throws a
   * TimeoutError, and the execution goes on, when that takes longer than
   * `timeoutSeconds` (default 60; no upper bound).
   */
  async wait(id: string, options: CallOptions & { timeoutSeconds?: number | undefined } = {}): Promise<Execution> {
    checkMembers("the options of this wait", options, { ...callMembers, timeoutSeconds: true });
    const timeoutSeconds = options.timeoutSeconds ?? 60;
    const end = Date.now() + timeoutSeconds * 1_000;
    for (;;) {
      const seconds = Math.min(maxWaitSeconds, Math.max(1, Math.ceil((end - Date.now()) / 1_000)));
      const e = await this.fetch(id, options.signal, seconds);
      if (e.state !== "queued" && e.state !== "running") return e;
      if (Date.now() >= end) throw newError({ code: "timeout", message: `execution ${id} is still ${e.state} after ${timeoutSeconds} s` });
    }
  }

  /**
   * Ends an execution: its processes get SIGTERM, and SIGKILL 5 seconds later; with
   * `force` SIGKILL at once. Does not wait for the end.
   */
  async cancel(id: string, options: CallOptions & { force?: boolean | undefined } = {}): Promise<Execution> {
    checkMembers("the options of this cancel", options, { ...callMembers, force: true });
    const w = await this.http.json<wire.Execution>({
      method: "POST",
      path: `${executionPath(id)}/cancel`,
      json: { force: options.force },
      signal: options.signal,
      repeatable: true,
    });
    return schemas.execution(w);
  }

  /** Reads an execution's output; as {@link Streams.read}. */
  async *logs(id: string, options: LogsOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const output = options.output ?? "stdout";
    const { streamId } = (await this.get(id, { signal: options.signal }))[output];
    if (streamId === "") throw newError({ code: "not_found", message: `execution ${id} keeps no ${output}` });
    yield* this.streams.read(streamId, options);
  }

  /**
   * Connects to an execution of a sandbox, from a byte of its stdout on. It goes on
   * when the session ends, and any number of sessions may be attached.
   */
  async attach(ref: string, id: string, options: CallOptions & { offset?: number | undefined } = {}): Promise<Session> {
    const path = sandboxPath(ref, `/executions/${segment(id)}/attach?offset=${options.offset ?? 0}`);
    return connect(this.http, path, () => this.get(id, { signal: options.signal }), options.signal);
  }

  private async fetch(id: string, signal?: AbortSignal, waitSeconds?: number): Promise<Execution> {
    const w = await this.http.json<wire.Execution>({
      method: "GET",
      path: executionPath(id),
      query: { wait_seconds: waitSeconds },
      signal,
      timeoutMs: waitSeconds === undefined ? undefined : waitSeconds * 1_000 + waitSlackMs,
      repeatable: true,
    });
    return schemas.execution(w);
  }
}

function executionPath(id: string): string {
  return `/v1/executions/${segment(id)}`;
}

/** An execution's command as the wire has it. */
export function encodeExecution({ files, tty, stdin, ...options }: ExecutionCommand): wire.ExecutionCommand {
  return {
    ...schemas.encodeCommandOptions(options),
    ...schemas.encodeExecutionOptions({ ...options, stdin }),
    files: files?.map((f) => ({ path: f.path, content: toBase64(f.content) })),
    tty,
  };
}
