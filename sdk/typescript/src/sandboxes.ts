/// <reference lib="esnext.disposable" preserve="true" />
import { fromBase64 } from "./base64.js";
import { Checkpoints } from "./checkpoints.js";
import * as schemas from "./schemas.js";
import { Contexts, runCode, runCodeStream, scanCode, type CodeEvent, type CodeResult, type RunCodeOptions, type ScanCodeOptions } from "./code.js";
import { Desktop } from "./desktop.js";
import { EndedError, SandboxFailedError, newError, type ErrorCode } from "./errors.js";
import { decodeResult, readEvents, encodeProgramOptions } from "./exec.js";
import { encodeExecution, executionCommandMembers } from "./executions.js";
import { Files } from "./files.js";
import type { HTTP } from "./http.js";
import { newKey } from "./key.js";
import { callMembers, checkMembers, type Members } from "./known.js";
import { maxWaitSeconds, waitSlackMs } from "./limits.js";
import { pages, type PagePromise } from "./page.js";
import { sandboxPath } from "./path.js";
import { Ports } from "./ports.js";
import { waitForQuota } from "./quotawait.js";
import { connect, type Session, type TerminalSize } from "./session.js";
import type { CallOptions, EventsOptions, ExecEvent, ExecOptions, ExecResult, Forked, ListSandboxesOptions, ProgramOptions, WaitOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { Cause, CodeScan, CommandOptions, CreateSandboxOptions, ForkOptions, NetworkOptions, PauseOptions, ResumeOptions, SandboxEvent, SandboxInfo, Stats, Usage } from "./schemas.js";

/** The server's own default and its slack for a command's end. */
const defaultExecSeconds = 60;

const waitMembers: Members<WaitOptions> = { ...callMembers, state: true, timeoutSeconds: true };
const programMembers: Members<ProgramOptions> = { ...schemas.commandOptionsMembers, program: true };
const execMembers: Members<ExecOptions> = { ...programMembers, ...callMembers, maxOutputBytes: true, output: true };
const { stdin: _text, ...attached } = schemas.commandOptionsMembers;
const attachMembers = { ...attached, ...callMembers, tty: true, stdin: true } as const;

/**
 * The sandboxes of a workspace. `ref` is a sandbox's id or name. Calls throw a
 * NotFoundError when there is no such sandbox. Safe for concurrent use.
 */
export class Sandboxes {
  /** Files of a sandbox. */
  readonly files: Files;
  /** Saved states of a sandbox. */
  readonly checkpoints: Checkpoints;
  /** Published ports of a sandbox. */
  readonly ports: Ports;
  /** Interpreters of a sandbox that keep their state. */
  readonly contexts: Contexts;

  constructor(private readonly http: HTTP) {
    this.files = new Files(http);
    this.checkpoints = new Checkpoints(http);
    this.ports = new Ports(http);
    this.contexts = new Contexts(http);
  }

  /** Returns the screen of a sandbox; nothing is sent yet. */
  desktop(ref: string): Desktop {
    return new Desktop(this.http, ref);
  }

  /**
   * Makes a sandbox, or answers the live one of the same request. Without
   * `waitSeconds` it is usually still provisioning when this returns.
   */
  async create(options: CreateSandboxOptions = {}): Promise<SandboxInfo> {
    return (await this.createNew(options)).info;
  }

  /** @internal Like create; `made` is false for the live sandbox of an equal request, which may be another program's. */
  async createNew(options: CreateSandboxOptions): Promise<{ info: SandboxInfo; made: boolean }> {
    let status = 0;
    checkMembers("command", options.command, executionCommandMembers);
    const json: wire.CreateSandbox = {
      ...schemas.encodeCreateSandboxOptions(options),
      command: options.command && encodeExecution(options.command),
    };
    const headers = { "idempotency-key": options.idempotencyKey ?? newKey() };
    const { signal, waitSeconds = 0, waitForQuotaSeconds = 0 } = options;
    // Both waits fit into one request, or the second is a request of its own. One that is too long is refused before anything is made.
    const together = waitSeconds + waitForQuotaSeconds <= maxWaitSeconds || !waitForQuotaSeconds || waitSeconds > maxWaitSeconds;
    const made = await waitForQuota(options.waitForQuotaSeconds, (seconds) => {
      const waits = (seconds ?? 0) + (together ? waitSeconds : 0);
      return this.http.json<wire.Sandbox>({
        method: "POST",
        path: "/v1/sandboxes",
        json: { ...json, wait_seconds: together ? options.waitSeconds : undefined, wait_for_quota_seconds: seconds },
        headers,
        signal,
        timeoutMs: waits ? waits * 1_000 + waitSlackMs : undefined,
        onStatus: (answered) => (status = answered),
        repeatable: true,
      });
    });
    const last = together || !waitSeconds ? made : await this.look(made.id, "running", waitSeconds, signal);
    return { info: schemas.sandbox(last), made: status === 201 };
  }

  /**
   * Makes a sandbox for the scope of a variable: it runs when this returns, and is
   * deleted at the end of the scope of `await using sandbox = await …`. Throws as wait does.
   */
  async temporary(options: CreateSandboxOptions = {}): Promise<SandboxInfo & AsyncDisposable> {
    const { waitSeconds, ...rest } = options;
    const { id } = await this.create(rest);
    const remove = async (): Promise<void> => void (await this.delete(id));
    try {
      const sandbox = await this.wait(id, { timeoutSeconds: waitSeconds, signal: options.signal });
      return { ...sandbox, [Symbol.asyncDispose]: remove };
    } catch (err) {
      await remove();
      throw err;
    }
  }

  async get(ref: string, options: CallOptions = {}): Promise<SandboxInfo> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Sandbox>({ method: "GET", path: sandboxPath(ref), signal: options.signal, repeatable: true });
    return schemas.sandbox(w);
  }

  /** Lists sandboxes, newest first. */
  list(options: ListSandboxesOptions = {}): PagePromise<SandboxInfo> {
    const query = {
      state: options.states,
      name: options.name,
      label: Object.entries(options.labels ?? {}).map(([key, value]) => `${key}=${value}`),
      snapshot_id: options.snapshotId,
    };
    return pages(this.http, options, () => ({ path: "/v1/sandboxes", query }), schemas.sandbox, { states: true, name: true, labels: true, snapshotId: true });
  }

  /** Deletes a sandbox and returns its last state when nothing of it remains; an ended sandbox as it is. */
  async delete(ref: string, options: CallOptions = {}): Promise<SandboxInfo> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Sandbox>({ method: "DELETE", path: sandboxPath(ref), signal: options.signal, repeatable: true });
    return schemas.sandbox(w);
  }

  /**
   * Returns as soon as the sandbox is in the state. Throws an EndedError when it
   * ended instead (a SandboxFailedError when it failed), and a TimeoutError when it did not get there in time.
   */
  async wait(ref: string, options: WaitOptions = {}): Promise<SandboxInfo> {
    checkMembers("WaitOptions", options, waitMembers);
    const state = options.state ?? "running";
    const timeoutSeconds = options.timeoutSeconds ?? 60;
    const end = Date.now() + timeoutSeconds * 1_000;
    for (;;) {
      const seconds = Math.min(maxWaitSeconds, Math.max(1, Math.ceil((end - Date.now()) / 1_000)));
      const w = await this.look(ref, state, seconds, options.signal);
      if (w.state === state) return schemas.sandbox(w);
      if (w.state === "destroyed" || w.state === "failed") throw endedError(schemas.sandbox(w));
      if (Date.now() >= end) {
        throw newError({ code: "timeout", message: `sandbox ${ref} is still ${w.state} after ${timeoutSeconds} s` });
      }
    }
  }

  /** Answers the sandbox when it is in the state or has ended, or after these seconds, which one request may wait. */
  private look(ref: string, state: string, seconds: number, signal: AbortSignal | undefined): Promise<wire.Sandbox> {
    return this.http.json<wire.Sandbox>({
      method: "GET",
      path: sandboxPath(ref, "/wait"),
      query: { state, timeout_seconds: seconds },
      signal,
      timeoutMs: seconds * 1_000 + waitSlackMs,
      repeatable: true,
    });
  }

  /**
   * Saves a sandbox, ends its processes and frees its memory; returns when that is
   * done. Calls into a paused sandbox resume it. With memory `false` only its files are
   * saved, and a resume starts it anew with them.
   */
  async pause(ref: string, options: PauseOptions = {}): Promise<SandboxInfo> {
    const json: wire.PauseSandbox = schemas.encodePauseOptions(options);
    const path = sandboxPath(ref, "/pause");
    const w = await this.http.json<wire.Sandbox>({ method: "POST", path, json, signal: options.signal, timeoutMs: 0, repeatable: true });
    return schemas.sandbox(w);
  }

  /**
   * Moves the state of a paused sandbox to the server's object store; returns when that is done. Everything that needs
   * the state fetches it first and takes longer. A sandbox that is not paused is an error of code `conflict`.
   */
  async archive(ref: string, options: { signal?: AbortSignal | undefined } = {}): Promise<SandboxInfo> {
    const path = sandboxPath(ref, "/archive");
    const w = await this.http.json<wire.Sandbox>({ method: "POST", path, signal: options.signal, timeoutMs: 0, repeatable: true });
    return schemas.sandbox(w);
  }

  /**
   * Brings a paused sandbox back and returns when it can be used. Where its memory
   * cannot be brought back it is started anew with its files, and `memoryLostReason` says
   * why; with memory `require` it stays paused and an error of code `unsupported`
   * is thrown, with `discard` it is started anew in any case.
   */
  async resume(ref: string, options: ResumeOptions = {}): Promise<SandboxInfo> {
    const { signal } = options;
    const path = sandboxPath(ref, "/resume");
    const w = await waitForQuota(options.waitForQuotaSeconds, (seconds) => {
      const json: wire.ResumeSandbox = { ...schemas.encodeResumeOptions(options), wait_for_quota_seconds: seconds };
      return this.http.json<wire.Sandbox>({ method: "POST", path, json, signal, timeoutMs: 0, repeatable: true });
    });
    return schemas.sandbox(w);
  }

  /**
   * Makes sandboxes with the memory, processes and files of a running or paused one.
   * Returns when each child runs or has failed, in the order of the names. Never sent twice, except while it waits for quota.
   */
  async fork(ref: string, options: ForkOptions = {}): Promise<Forked[]> {
    const json: wire.Fork = schemas.encodeForkOptions(options);
    const { signal } = options;
    const path = sandboxPath(ref, "/fork");
    const w = await waitForQuota(options.waitForQuotaSeconds, (seconds) => {
      const body: wire.Fork = { ...json, wait_for_quota_seconds: seconds };
      return this.http.json<wire.ForkList>({ method: "POST", path, json: body, signal, timeoutMs: 0, repeatable: false });
    });
    return w.forks.map(forked);
  }

  /**
   * Sets environment variables, and deletes variables that are null, for the commands
   * that start afterwards. Returns all that callers have set.
   */
  async updateEnv(ref: string, changes: Record<string, string | null>, options: CallOptions = {}): Promise<Record<string, string>> {
    checkMembers("CallOptions", options, callMembers);
    const path = sandboxPath(ref, "/env");
    const w = await this.http.json<wire.Env>({ method: "PATCH", path, json: changes, signal: options.signal, repeatable: true });
    return w.env;
  }

  /**
   * Runs a command to its end. A command that fails is no error: look at
   * `exitCode`. It is never sent twice; when the signal is aborted it is killed.
   * fetch of some runtimes gives up after 300 s without an answer: use
   * {@link execStream} for commands that may be silent for longer.
   */
  exec(ref: string, options: ExecOptions & { output: "bytes" }): Promise<ExecResult<Uint8Array>>;
  exec(ref: string, options: ExecOptions & { output?: "text" | undefined }): Promise<ExecResult>;
  async exec(ref: string, options: ExecOptions): Promise<ExecResult | ExecResult<Uint8Array>> {
    checkMembers("ExecOptions", options, execMembers);
    const bytes = options.output === "bytes";
    const json: Partial<wire.Exec> = {
      ...encodeProgramOptions(options),
      max_output_bytes: options.maxOutputBytes,
      encoding: bytes ? "base64" : undefined,
    };
    const w = await this.http.json<wire.ExecResult>({
      method: "POST",
      path: sandboxPath(ref, "/exec"),
      json,
      signal: options.signal,
      timeoutMs: (options.timeoutSeconds ?? defaultExecSeconds) * 1_000 + waitSlackMs,
      repeatable: false,
    });
    return bytes ? decodeResult(w, fromBase64) : decodeResult(w, String);
  }

  /**
   * Runs a command and gives its output as it comes, in bytes; the last event is
   * `exit`. Leaving the loop early, or aborting the signal, kills the command.
   * Throws when the end of the command is not known.
   */
  async *execStream(ref: string, options: ProgramOptions & CallOptions): AsyncGenerator<ExecEvent, void, undefined> {
    checkMembers("ProgramOptions", options, { ...programMembers, ...callMembers });
    const response = await this.http.raw({
      method: "POST",
      path: sandboxPath(ref, "/exec/stream"),
      json: encodeProgramOptions(options),
      signal: options.signal,
      repeatable: false,
    });
    if (response.body === null) throw newError({ code: "bad_response", message: "the answer has no body", status: response.status });
    yield* readEvents(response.body, options.signal);
  }

  /**
   * Runs a command and stays connected to it: input, terminal, signals. Ending the
   * session, or aborting the signal, kills the command. With `tty` everything is on stdout.
   */
  async attach(
    ref: string,
    options: Omit<CommandOptions, "stdin"> & CallOptions & { tty?: TerminalSize | undefined; stdin?: boolean | undefined },
  ): Promise<Session> {
    checkMembers("the options of this attach", options, attachMembers);
    const { signal, tty, stdin, ...command } = options;
    const first = { ...schemas.encodeCommandOptions(command), tty, stdin };
    return connect(this.http, sandboxPath(ref, "/exec/attach"), () => this.get(ref, { signal }), signal, first);
  }

  /**
   * Runs code in an interpreter that keeps its state, to its end, in one request. Code that fails is no error: look at
   * `error`. It is never sent twice; when the signal is aborted the code is interrupted. As for {@link exec}, use
   * {@link runCodeStream} for code that runs for longer than 300 s. Throws code `unsupported` if the sandbox does not have the language.
   */
  async runCode(ref: string, code: string, options: RunCodeOptions = {}): Promise<CodeResult> {
    return runCode(this.http, ref, code, options);
  }

  /** As {@link runCode}, and gives events as they happen; the last one is `end`. Leaving the loop interrupts the code. */
  runCodeStream(ref: string, code: string, options: RunCodeOptions = {}): AsyncGenerator<CodeEvent, void, undefined> {
    return runCodeStream(this.http, ref, code, options);
  }

  /**
   * Parses code in the sandbox, without running it, and returns the constructs that deserve a look. A scan catches mistakes; code can
   * hide what it does. Throws a ProgramNotFoundError if the sandbox does not have the language's interpreter.
   */
  scanCode(ref: string, code: string, options: ScanCodeOptions = {}): Promise<CodeScan> {
    return scanCode(this.http, ref, code, options);
  }

  /** Lists what happened to a sandbox, oldest first unless asked otherwise. */
  events(ref: string, options: EventsOptions = {}): PagePromise<SandboxEvent> {
    const query = { after_seq: options.afterSeq, order: options.order };
    return pages(this.http, options, () => ({ path: sandboxPath(ref, "/events"), query }), schemas.event, { afterSeq: true, order: true });
  }

  /** Measures a running sandbox now. */
  async stats(ref: string, options: CallOptions = {}): Promise<Stats> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Stats>({ method: "GET", path: sandboxPath(ref, "/stats"), signal: options.signal, repeatable: true });
    return schemas.stats(w);
  }

  /** Returns the use of a sandbox since its create, also after its end. */
  async usage(ref: string, options: CallOptions = {}): Promise<Usage> {
    checkMembers("CallOptions", options, callMembers);
    const w = await this.http.json<wire.Usage>({ method: "GET", path: sandboxPath(ref, "/usage"), signal: options.signal, repeatable: true });
    return schemas.usage(w);
  }

  /**
   * Changes settings of a sandbox; settings that the options leave out stay. `ttlSeconds` counts from now; 0 removes the limit.
   * `checkpointIntervalSeconds` 0 switches automatic checkpoints off and deletes the automatic checkpoint.
   */
  async update(
    ref: string,
    options: { ttlSeconds?: number | undefined; checkpointIntervalSeconds?: number | undefined } & CallOptions,
  ): Promise<SandboxInfo> {
    checkMembers("the options of this update", options, { ...callMembers, ttlSeconds: true, checkpointIntervalSeconds: true });
    const { ttlSeconds, checkpointIntervalSeconds } = options;
    const json: wire.UpdateSandbox = { ttl_seconds: ttlSeconds, checkpoint_interval_seconds: checkpointIntervalSeconds };
    const w = await this.http.json<wire.Sandbox>({ method: "PATCH", path: sandboxPath(ref), json, signal: options.signal, repeatable: true });
    return schemas.sandbox(w);
  }

  /**
   * Changes the network of a running or paused sandbox; what the options leave out
   * stays. Connections that are not allowed any more are cut. `ports` replaces the list of published
   * ports, and a port that stays in it keeps its URL. `allowOut` replaces the destinations that the
   * sandbox may reach: IPv4 addresses, ranges, and names such as `example.com` and `*.example.com`;
   * `denyOut` the addresses and ranges that it may not reach. `requestHost` is the host that its
   * servers see in requests, with `${PORT}` for the port and "" for the host of the URL; `httpsPorts`
   * replaces the ports whose servers speak HTTPS.
   */
  async setNetwork(ref: string, options: NetworkOptions & CallOptions): Promise<SandboxInfo> {
    const { signal, ...network } = options;
    const json: wire.ChangeNetwork = schemas.encodeNetworkOptions(network);
    const w = await this.http.json<wire.Sandbox>({
      method: "PATCH",
      path: sandboxPath(ref, "/network"),
      json,
      signal,
      repeatable: true,
    });
    return schemas.sandbox(w);
  }
}

/** The causes of an end that a caller or a setting wanted. */
const intended: ReadonlySet<Cause["code"]> = new Set(["destroyed", "replaced", "ttl", "idle", "paused_ttl", "completed"]);

/** The error for calls of a sandbox that has ended. */
export function endedError(info: SandboxInfo): EndedError {
  // A sandbox that failed may still be on its way to the state failed.
  if (info.state === "failed" || (info.cause !== undefined && !intended.has(info.cause.code))) return new SandboxFailedError(info);
  const message = `sandbox ${info.name} is ${info.state}: ${info.cause?.message ?? "no reason is known"}`;
  return new EndedError({ code: "ended", message, cause: info.cause });
}

function forked(w: wire.ForkList["forks"][number]): Forked {
  return {
    sandbox: w.sandbox && schemas.sandbox(w.sandbox),
    error: w.error && newError({ code: w.error.code as ErrorCode, message: w.error.detail }),
  };
}
