import { CommandError, newError } from "./errors.js";
import type { Modbox } from "./client.js";
import type { StartExecutionOptions } from "./executions.js";
import { callMembers, checkMembers, type Members } from "./known.js";
import { Output, defaultOutputBytes, type TextCallback } from "./output.js";
import type { PagePromise } from "./page.js";
import type { CallOptions, CommandResult, PageOptions, Program } from "./types.js";
import type { CodeScan, ExecLimits, Execution } from "./schemas.js";

/** The longest command that is run in one silent request: fetch of Node fails after 300 s without an answer. */
const maxSilentSeconds = 240;

/** How a command runs. */
export interface RunOptions extends CallOptions {
  /** Working directory; default the image's. */
  cwd?: string | undefined;
  /** Environment variables in addition to the sandbox's. */
  env?: Record<string, string> | undefined;
  /** User to run as: name, uid, name:group or uid:gid; default the image's. */
  user?: string | undefined;
  /** The command's standard input; default empty. */
  stdin?: string | undefined;
  /** Seconds until the command and its children are killed; default 60, at most 3600, unless the server is configured otherwise. */
  timeoutSeconds?: number | undefined;
  /** Limits of this command and its processes, tighter than the sandbox's: a command that exceeds one is killed, and `limitExceeded` names it. */
  limits?: ExecLimits | undefined;
  /** Called with the standard output as it arrives. */
  onStdout?: TextCallback | undefined;
  /** Called with the standard error as it arrives. */
  onStderr?: TextCallback | undefined;
  /** Bytes that the result keeps of each of stdout and stderr; default 1 MiB, at most 16 MiB. More is dropped from the result, and the command continues. */
  maxOutputBytes?: number | undefined;
  /** Throw a CommandError, which has the result, if the exit code is not 0. */
  check?: boolean | undefined;
}

/** How a command in the background runs. */
export interface StartCommandOptions extends Omit<StartExecutionOptions, "command" | "shell" | "kind" | "stdin" | "waitSeconds"> {
  /** true: `write` and `closeStdin` give the command its standard input. Text: the whole standard input. Default: empty. */
  stdin?: boolean | string | undefined;
}

/** Options of {@link Command.wait}. */
export interface WaitCommandOptions extends CallOptions {
  /** Seconds until a TimeoutError is thrown, while the command continues; default no limit. */
  timeoutSeconds?: number | undefined;
  /** Bytes that the result keeps of each of stdout and stderr; default 1 MiB. */
  maxOutputBytes?: number | undefined;
  /** Throw a CommandError, which has the result, if the exit code is not 0. */
  check?: boolean | undefined;
}

/** A piece of a command's output. */
export interface OutputChunk {
  /** Always `stdout` for a command with a terminal, or with `combined`. */
  stream: "stdout" | "stderr";
  text: string;
}

const signals = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGKILL: 9, SIGUSR1: 10, SIGUSR2: 12, SIGTERM: 15, SIGCONT: 18, SIGSTOP: 19 } as const;

/** The name of a signal. */
export type SignalName = keyof typeof signals;

const runMembers: Members<RunOptions> = {
  ...callMembers, cwd: true, env: true, user: true, stdin: true, timeoutSeconds: true, limits: true, onStdout: true, onStderr: true, maxOutputBytes: true, check: true,
};
const waitMembers: Members<WaitCommandOptions> = { ...callMembers, timeoutSeconds: true, maxOutputBytes: true, check: true };

/** The commands of one sandbox. Safe for concurrent use. */
export class Commands {
  /** @internal */
  constructor(
    private readonly client: Modbox,
    private readonly sandboxId: string,
  ) {}

  /**
   * Runs a command to its end: a string in a shell (bash, or sh in an image without bash), a list as program and arguments,
   * a {@link Program} by the interpreter of its language.
   * A command that fails is no error unless `check` is set: look at `exitCode`. It is never sent twice. When the signal is
   * aborted, or a callback throws, the command is killed.
   *
   * Throws a ProgramNotFoundError if the sandbox does not have the program of a list, a FileNotFoundError if `cwd` does not
   * exist, an EndedError if the sandbox has ended, and a ConnectionError if the end of the command is not known.
   */
  async run(command: string | readonly string[] | Program, options: RunOptions = {}): Promise<CommandResult> {
    checkMembers("RunOptions", options, runMembers);
    const { onStdout, onStderr, timeoutSeconds = 0 } = options;
    const silent = !onStdout && !onStderr && timeoutSeconds <= maxSilentSeconds;
    const result = silent ? await this.exec(command, options) : await this.stream(command, options);
    return checked(describe(command), result, options.check);
  }

  /**
   * Starts a command in the background and returns as soon as it runs. It goes on when this program ends; `get` finds it again by
   * its id. The server stores its output and deletes it 24 hours after the command's end. Throws a CommandError if the command cannot be started.
   */
  async start(command: string | readonly string[], options: StartCommandOptions = {}): Promise<Command> {
    const { stdin, ...rest } = options;
    const input = typeof stdin === "string" ? true : stdin;
    const info = await this.client.executions.start(this.sandboxId, { ...rest, ...asCommand(command), kind: "job", stdin: input });
    if (info.state === "failed" && info.exitCode === undefined) throw lost(info);
    const started = new Command(this.client, info);
    if (typeof stdin === "string") await this.client.streams.write(info.stdinStreamId ?? "", stdin, { signal: options.signal });
    return started;
  }

  /** Lists the sandbox's background commands, newest first, including commands that have ended. */
  list(options: PageOptions = {}): PagePromise<Command> {
    return this.client.executions.list(this.sandboxId, { ...options, kind: "job" }).map((info) => new Command(this.client, info));
  }

  /** Returns a background command by its id. Throws a NotFoundError for an unknown one. */
  async get(id: string, options: CallOptions = {}): Promise<Command> {
    checkMembers("CallOptions", options, callMembers);
    const info = await this.client.executions.get(id, options);
    if (info.sandboxId !== this.sandboxId) throw newError({ code: "not_found", message: `sandbox ${this.sandboxId} has no command ${id}` });
    return new Command(this.client, info);
  }

  /** Returns the image's own command, which started with the sandbox. Throws a NotFoundError if there is none, and in a fork. */
  async main(options: CallOptions = {}): Promise<Command> {
    checkMembers("CallOptions", options, callMembers);
    const page = await this.client.executions.list(this.sandboxId, { ...options, kind: "main", limit: 1 });
    const [info] = page.items;
    if (info === undefined) throw newError({ code: "not_found", message: `sandbox ${this.sandboxId} has no record of a main command` });
    return new Command(this.client, info);
  }

  private async exec(command: string | readonly string[] | Program, options: RunOptions): Promise<CommandResult> {
    const { signal, ...result } = await this.client.sandboxes.exec(this.sandboxId, { ...(isProgram(command) ? { program: command } : asCommand(command)), ...execOptions(options) });
    return result;
  }

  private async stream(command: string | readonly string[] | Program, options: RunOptions): Promise<CommandResult> {
    const { maxOutputBytes = defaultOutputBytes, ...rest } = execOptions(options);
    const stdout = new Output(maxOutputBytes, options.onStdout);
    const stderr = new Output(maxOutputBytes, options.onStderr);
    let scan: CodeScan | undefined;
    for await (const event of this.client.sandboxes.execStream(this.sandboxId, { ...(isProgram(command) ? { program: command } : asCommand(command)), ...rest })) {
      if (event.type === "started") scan = event.scan;
      if (event.type === "stdout") await stdout.add(event.data);
      if (event.type === "stderr") await stderr.add(event.data);
      if (event.type !== "exit") continue;
      const { exitCode, timedOut, limitExceeded, durationMs } = event;
      return { exitCode, timedOut, ...(limitExceeded && { limitExceeded }), ...(await texts(stdout, stderr)), durationMs, ...(scan && { scan }) };
    }
    throw newError({ code: "bad_response", message: "the stream of the command has no exit" }); // the stream throws before
  }
}

/** A command in the background. It goes on whatever happens to this program. */
export class Command {
  /** Identifies the command, for {@link Commands.get}. */
  readonly id: string;
  private last: Execution;

  /** @internal */
  constructor(
    private readonly client: Modbox,
    info: Execution,
  ) {
    this.id = info.id;
    this.last = info;
  }

  /** The last known record of the command: its state, times and exit code. */
  get info(): Execution {
    return this.last;
  }

  /** Fetches the command's record. */
  async refresh(options: CallOptions = {}): Promise<Execution> {
    checkMembers("CallOptions", options, callMembers);
    return (this.last = await this.client.executions.get(this.id, options));
  }

  /**
   * Iterates over the command's output from its beginning, as it arrives, until the command ends. Characters are never split;
   * the order is exact within each stream. A broken connection is continued where it was. Leaving the loop has no effect on the command.
   */
  async *output(options: CallOptions = {}): AsyncGenerator<OutputChunk, void, undefined> {
    const { stdout, stderr } = this.last;
    const stop = new AbortController();
    const abort = () => stop.abort(options.signal?.reason);
    if (options.signal?.aborted) abort();
    options.signal?.addEventListener("abort", abort, { once: true });
    const read = (stream: OutputChunk["stream"], id: string) => this.chunks(stream, id, stop.signal);
    const sources = stdout.streamId === "" ? [] : [read("stdout", stdout.streamId)];
    if (stderr.streamId !== "" && stderr.streamId !== stdout.streamId) sources.push(read("stderr", stderr.streamId));
    try {
      yield* merged(sources);
    } finally {
      options.signal?.removeEventListener("abort", abort);
      stop.abort();
    }
  }

  /**
   * Waits for the command's end and returns its exit code and output. A command that fails is no error unless `check` is set.
   * Throws a TimeoutError after `timeoutSeconds`, and a CommandError if the exit code cannot be known, for example because the sandbox was deleted.
   */
  async wait(options: WaitCommandOptions = {}): Promise<CommandResult> {
    checkMembers("WaitCommandOptions", options, waitMembers);
    const { signal, timeoutSeconds = Infinity, maxOutputBytes = defaultOutputBytes } = options;
    const info = (this.last = await this.client.executions.wait(this.id, { signal, timeoutSeconds }));
    if (info.exitCode === undefined) throw lost(info);
    const stdout = await this.collect(info.stdout.streamId, maxOutputBytes, signal);
    const stderr = info.stderr.streamId === info.stdout.streamId ? new Output(0) : await this.collect(info.stderr.streamId, maxOutputBytes, signal);
    stdout.truncated ||= info.stdout.truncated;
    stderr.truncated ||= info.stderr.streamId !== info.stdout.streamId && info.stderr.truncated;
    const { exitCode, durationMs, state, limitExceeded } = info;
    const result = { exitCode, timedOut: state === "timeout", ...(limitExceeded && { limitExceeded }), ...(await texts(stdout, stderr)), durationMs };
    return checked(describe(info.command), result, options.check);
  }

  /**
   * Sends a signal to the command and its children. After `SIGTERM`, the default, `SIGKILL` follows 5 seconds later.
   * Does not wait for the end. Signals other than `SIGTERM` and `SIGKILL` need a WebSocket: see `ModboxOptions.WebSocket`.
   */
  async kill(signal: SignalName = "SIGTERM", options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    if (signal === "SIGTERM" || signal === "SIGKILL") {
      this.last = await this.client.executions.cancel(this.id, { ...options, force: signal === "SIGKILL" });
      return;
    }
    const { sandboxId, stdout } = await this.refresh(options);
    const session = await this.client.executions.attach(sandboxId, this.id, { ...options, offset: stdout.sizeBytes });
    session.kill(signals[signal]);
    session.close();
  }

  /** Writes to the command's standard input; text as UTF-8. Throws code `conflict` for a command that was started without `stdin: true`. */
  async write(data: string | Uint8Array<ArrayBuffer>, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.client.streams.write(this.stdin(), data, { ...options, end: false });
  }

  /** Ends the command's standard input. */
  async closeStdin(options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.client.streams.write(this.stdin(), "", options);
  }

  private stdin(): string {
    const { stdinStreamId } = this.last;
    if (!stdinStreamId) throw newError({ code: "conflict", message: `command ${this.id} has no input: start it with { stdin: true }` });
    return stdinStreamId;
  }

  private async *chunks(stream: OutputChunk["stream"], id: string, signal: AbortSignal): AsyncGenerator<OutputChunk, void, undefined> {
    const decoder = new TextDecoder();
    for await (const chunk of this.client.streams.read(id, { follow: true, signal })) {
      const text = decoder.decode(chunk, { stream: true });
      if (text !== "") yield { stream, text };
    }
    const rest = decoder.decode();
    if (rest !== "") yield { stream, text: rest };
  }

  private async collect(streamId: string, maxBytes: number, signal: AbortSignal | undefined): Promise<Output> {
    const output = new Output(maxBytes);
    if (streamId === "") return output;
    for await (const chunk of this.client.streams.read(streamId, { signal })) {
      await output.add(chunk);
      if (output.truncated) break;
    }
    return output;
  }
}

/** A string as a shell's script, a list as program and arguments. */
function asCommand(command: string | readonly string[]): { shell: string } | { command: readonly string[] } {
  return typeof command === "string" ? { shell: command } : { command };
}

function isProgram(command: string | readonly string[] | Program): command is Program {
  return typeof command === "object" && "code" in command;
}

function execOptions({ signal, cwd, env, user, stdin, timeoutSeconds, limits, maxOutputBytes }: RunOptions) {
  return { signal, cwd, env, user, stdin, timeoutSeconds, limits, maxOutputBytes };
}

async function texts(stdout: Output, stderr: Output) {
  return {
    stdout: await stdout.end(),
    stderr: await stderr.end(),
    stdoutTruncated: stdout.truncated,
    stderrTruncated: stderr.truncated,
  };
}

function describe(command: string | readonly string[] | Program): string {
  const text = typeof command === "string" ? command : isProgram(command) ? command.path : command.join(" ");
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

function checked(command: string, result: CommandResult, check: boolean | undefined): CommandResult {
  if (!check || (result.exitCode === 0 && !result.timedOut && !result.limitExceeded)) return result;
  const limit = result.limitExceeded && `exceeded its limit of ${result.limitExceeded}`;
  const why = limit ?? (result.timedOut ? "was killed at its timeout" : `ended with exit code ${result.exitCode}`);
  const said = lastWords(result);
  throw new CommandError(`command ${JSON.stringify(command)} ${why}${said && `: ${said}`}`, result);
}

/** The ends of both outputs, standard error first, together some 500 characters: pip and pytest, for example, explain a failure on standard output. */
function lastWords({ stdout, stderr }: { stdout: string; stderr: string }): string {
  const most = 500;
  const errors = stderr.trim().slice(-most);
  const left = most - errors.length;
  const output = left > 0 ? stdout.trim().slice(-left) : "";
  return errors && output ? `${errors}\nstdout: ${output}` : errors || output;
}

function lost(info: Execution): CommandError {
  return new CommandError(`command ${JSON.stringify(describe(info.command))} is ${info.state}: ${info.error ?? "its exit code is not known"}`, undefined);
}

/** Gives the items of all sources as they come, and ends with the last source. */
async function* merged<T>(sources: AsyncGenerator<T, void, undefined>[]): AsyncGenerator<T, void, undefined> {
  const pending = new Map(sources.map((source) => [source, advance(source)]));
  try {
    while (pending.size > 0) {
      const { source, result } = await Promise.race(pending.values());
      if (result.done) {
        pending.delete(source);
        continue;
      }
      pending.set(source, advance(source));
      yield result.value;
    }
  } finally {
    for (const next of pending.values()) next.catch(() => undefined); // nobody waits for them any more
  }
}

async function advance<T>(source: AsyncGenerator<T, void, undefined>) {
  return { source, result: await source.next() };
}
