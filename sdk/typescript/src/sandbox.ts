/// <reference lib="esnext.disposable" preserve="true" />
import { SandboxCheckpoints, SandboxContexts, SandboxPorts, contextId } from "./bound.js";
import { Modbox } from "./client.js";
import { CodeResult, type CodeOutput, type ScanCodeOptions } from "./code.js";
import { Commands, type RunOptions } from "./commands.js";
import type { Desktop } from "./desktop.js";
import { TimeoutError, newError } from "./errors.js";
import { callMembers, checkMembers, type Members } from "./known.js";
import { maxWaitSeconds } from "./limits.js";
import type { TextCallback } from "./output.js";
import type { PagePromise } from "./page.js";
import { SandboxFiles } from "./sandboxfiles.js";
import { endedError } from "./sandboxes.js";
import type { CallOptions, CommandResult, ListSandboxesOptions, Program } from "./types.js";
import { createSandboxOptionsMembers, publishPortOptionsMembers, resumeOptionsMembers } from "./schemas.js";
import type {
  CodeContext,
  ExecLimits,
  CodeScan,
  CreateSandboxOptions,
  CreateSnapshotOptions,
  ForkOptions,
  PauseOptions,
  PublishPortOptions,
  ResumeOptions,
  SandboxEvent,
  SandboxInfo,
  Snapshot,
} from "./schemas.js";

/** Seconds that a sandbox lives when its maker does not say. */
const defaultTtlSeconds = 900;
/** Seconds in which a sandbox has to run when its maker does not say: without and with a wait for its image. */
const defaultWaitSeconds = 60;
const imageWaitSeconds = 1_800;
/** Seconds between two looks at what the server does for the image. */
const progressSeconds = 5;

/** The client of a call; default the client of MODBOX_URL and MODBOX_API_TOKEN. */
export interface ClientOptions {
  client?: Modbox | undefined;
}

/** A new sandbox; the empty object is the default image with default limits. */
export interface SandboxOptions extends CreateSandboxOptions, ClientOptions {
  /** Seconds after which the sandbox is deleted, 60 to 86400; default 900 (15 minutes). 0: the image's default, or no limit. */
  ttlSeconds?: number | undefined;
  /** Seconds in which the sandbox has to run; default 60, and 1,800 (30 minutes) if the server has to build or pull its image. */
  waitSeconds?: number | undefined;
  /**
   * Called with each event of the type `image_building`: the server builds or pulls the sandbox's image, or installs packages.
   * `event.message` is for people; `event.data` has `image`, `phase` and `detail`.
   */
  onProgress?: ((event: SandboxEvent) => void | Promise<void>) | undefined;
}

/** How {@link Sandbox.connect} finds a sandbox, and resumes a paused one. */
export interface ConnectOptions extends ResumeOptions, ClientOptions {}

/** Which sandboxes to list; the empty object is all that have not ended. */
export interface SandboxListOptions extends ListSandboxesOptions, ClientOptions {}

/** Where code runs, for how long, and the callbacks for its output. */
export interface CodeOptions extends CallOptions {
  /** `python` (default), `javascript`, `typescript`, `bash` or `r`: the code runs in the default context of the language. */
  language?: string | undefined;
  /** The context in which the code runs, instead of `language`: an id, or the answer of `contexts.create`. */
  context?: string | CodeContext | undefined;
  /** Seconds until the code is interrupted; the server's default, 60, when omitted. */
  timeoutSeconds?: number | undefined;
  /** Limits of the context while the code runs, in place of the limits of the context: `limitExceeded` of the result names the limit that the code exceeded. */
  limits?: ExecLimits | undefined;
  /** Called with the standard output as it arrives. */
  onStdout?: TextCallback | undefined;
  /** Called with the standard error as it arrives. */
  onStderr?: TextCallback | undefined;
  /** Called with each value that the code displays, and with the value of its last expression. */
  onResult?: ((result: CodeOutput) => void | Promise<void>) | undefined;
}

const sandboxMembers: Members<SandboxOptions> = { ...createSandboxOptionsMembers, client: true, onProgress: true };
const connectMembers: Members<ConnectOptions> = { ...resumeOptionsMembers, client: true };
const codeMembers: Members<CodeOptions> = {
  ...callMembers, language: true, context: true, timeoutSeconds: true, limits: true, onStdout: true, onStderr: true, onResult: true,
};

/**
 * A sandbox: an isolated Linux environment with its own files, processes and URLs.
 *
 * ```js
 * const sbx = await Sandbox.create({ image: "modbox/code-exec" });
 * console.log((await sbx.run("ls -la | wc -l")).stdout);
 * await sbx.delete();
 * ```
 *
 * All calls throw a ModboxError, for a sandbox that has ended an EndedError, or the signal's reason when it is aborted. Calls into a
 * paused sandbox resume it. Safe for concurrent use.
 */
export class Sandbox {
  /** The sandbox's identifier. */
  readonly id: string;
  /** The caller's identifier, unique among the workspace's sandboxes that have not ended. */
  readonly name: string;
  /** The client that the sandbox's calls use: it has all other calls of the API. */
  readonly client: Modbox;
  readonly commands: Commands;
  readonly files: SandboxFiles;
  readonly contexts: SandboxContexts;
  readonly checkpoints: SandboxCheckpoints;
  readonly ports: SandboxPorts;
  /** The screen, if the sandbox has one, as the image `modbox/sandbox` does. */
  readonly desktop: Desktop;
  private last: SandboxInfo;

  /** @internal */
  constructor(client: Modbox, info: SandboxInfo) {
    const { sandboxes } = client;
    this.id = info.id;
    this.name = info.name;
    this.client = client;
    this.last = info;
    this.commands = new Commands(client, info.id);
    this.files = new SandboxFiles(sandboxes.files, info.id);
    this.contexts = new SandboxContexts(sandboxes.contexts, info.id);
    this.checkpoints = new SandboxCheckpoints(sandboxes.checkpoints, info.id, (next) => this.known(next));
    this.ports = new SandboxPorts(sandboxes.ports, info.id);
    this.desktop = sandboxes.desktop(info.id);
  }

  /**
   * Creates a sandbox and returns when it runs. While a sandbox of the name lives, the same options return that sandbox.
   *
   * Throws a SandboxFailedError, with the cause, if the sandbox fails; a TimeoutError if it does not run within `waitSeconds`, and
   * deletes it, unless an equal request may have made it; a QuotaError at a limit of the workspace; a ConflictError if the name belongs to a sandbox with other options.
   * When the signal is aborted while the request is under way, a sandbox that was made meanwhile lives until its ttl ends it.
   */
  static async create(options: SandboxOptions = {}): Promise<Sandbox> {
    checkMembers("SandboxOptions", options, sandboxMembers);
    const { client = new Modbox(), waitSeconds, ttlSeconds = defaultTtlSeconds, onProgress, ...rest } = options;
    const limit = waitSeconds ?? defaultWaitSeconds;
    const first = Math.min(limit, onProgress ? progressSeconds : maxWaitSeconds);
    const { info, made } = await client.sandboxes.createNew({ ...rest, ttlSeconds, waitSeconds: first });
    if (info.state === "destroyed" && info.cause?.code === "completed") return new Sandbox(client, info); // a one-shot
    if (info.state !== "provisioning") return new Sandbox(client, await running(client, info, options));
    try {
      return new Sandbox(client, await started(client, info, made, options, limit - first));
    } catch (err) {
      if (made) await client.sandboxes.delete(info.id).catch(() => undefined); // the first error counts
      throw err;
    }
  }

  /**
   * Returns the sandbox of an id or name when it runs, and resumes it if it is paused. Throws a NotFoundError for an unknown one, an
   * EndedError for a sandbox that has ended, and a SandboxFailedError, which is an EndedError, for a sandbox that failed.
   */
  static async connect(idOrName: string, options: ConnectOptions = {}): Promise<Sandbox> {
    checkMembers("ConnectOptions", options, connectMembers);
    const { client = new Modbox() } = options;
    const info = await client.sandboxes.get(idOrName, { signal: options.signal });
    return new Sandbox(client, await running(client, info, options));
  }

  /** Lists the workspace's sandboxes, newest first: `for await` walks over all records, `.all()` returns them as an array. */
  static list(options: SandboxListOptions = {}): PagePromise<SandboxInfo> {
    const { client = new Modbox(), ...rest } = options;
    return client.sandboxes.list(rest);
  }

  /** Creates a sandbox, calls a function with it, and deletes it when the function has ended, also by an error. Returns the function's value. */
  static async with<T>(options: SandboxOptions, use: (sbx: Sandbox) => T | Promise<T>): Promise<T> {
    const sbx = await Sandbox.create(options);
    try {
      return await use(sbx);
    } finally {
      await sbx.delete();
    }
  }

  /** The last known record of the sandbox: its state, URL, limits and times. {@link refresh} fetches it anew. */
  get info(): SandboxInfo {
    return this.last;
  }

  /** Fetches the sandbox's record. */
  async refresh(options: CallOptions = {}): Promise<SandboxInfo> {
    checkMembers("CallOptions", options, callMembers);
    return this.known(await this.client.sandboxes.get(this.id, options));
  }

  /** Runs a command to its end; see {@link Commands.run}. */
  run(command: string | readonly string[] | Program, options: RunOptions = {}): Promise<CommandResult> {
    return this.commands.run(command, options);
  }

  /**
   * Runs code in an interpreter that keeps its variables, imports and files between calls, and returns its output and its values.
   * Code that fails is no error of the call: look at `error`. It is never sent twice; when the signal is aborted, or a callback
   * throws, the code is interrupted. Throws code `unsupported` if the sandbox does not have the language.
   */
  async runCode(code: string, options: CodeOptions = {}): Promise<CodeResult> {
    checkMembers("CodeOptions", options, codeMembers);
    const { signal, language, context, timeoutSeconds, limits, onStdout, onStderr, onResult } = options;
    const request = { signal, language, contextId: context === undefined ? undefined : contextId(context), timeoutSeconds, limits };
    const result = new CodeResult();
    for await (const event of this.client.sandboxes.runCodeStream(this.id, code, request)) {
      result.add(event);
      if (event.type === "stdout") await onStdout?.(event.text);
      if (event.type === "stderr") await onStderr?.(event.text);
      if (event.type === "result") await onResult?.(event.result);
    }
    return result;
  }

  /**
   * Parses code in the sandbox, without running it, and returns the constructs that deserve a look. A scan catches mistakes; code can
   * hide what it does. Throws a ProgramNotFoundError if the sandbox does not have the language's interpreter.
   */
  scanCode(code: string, options: ScanCodeOptions = {}): Promise<CodeScan> {
    return this.client.sandboxes.scanCode(this.id, code, options);
  }

  /**
   * Returns the URL of a port, and publishes the port if it is not published. The URL leads to this port and to nothing else.
   * `access` changes the access of the port; without it, a published port keeps its access, and a new one is `public`. Visitors of a
   * `private` port need an API token or a link of `ports.createLink` as well.
   */
  async url(port: number, options: PublishPortOptions = {}): Promise<string> {
    checkMembers("PublishPortOptions", options, publishPortOptionsMembers);
    for await (const published of this.ports.list({ signal: options.signal })) {
      const asWanted = options.access === undefined || published.access === options.access;
      if (published.port === port && asWanted) return published.url;
    }
    return (await this.ports.publish(port, options)).url;
  }

  /** Sets the time after which the sandbox is deleted: seconds from now; 0 removes the limit. */
  async setTimeout(seconds: number, options: CallOptions = {}): Promise<SandboxInfo> {
    checkMembers("CallOptions", options, callMembers);
    return this.known(await this.client.sandboxes.update(this.id, { ...options, ttlSeconds: seconds }));
  }

  /**
   * Saves the sandbox with memory and processes and frees its memory; returns when that is done. The next call resumes it. With
   * memory `false` only its files are saved, and a resume starts it anew with them.
   */
  async pause(options: PauseOptions = {}): Promise<SandboxInfo> {
    return this.known(await this.client.sandboxes.pause(this.id, options));
  }

  /**
   * Moves the state of the paused sandbox to the server's object store; returns when that is done. The next call fetches it, and
   * takes longer.
   */
  async archive(options: { signal?: AbortSignal | undefined } = {}): Promise<SandboxInfo> {
    return this.known(await this.client.sandboxes.archive(this.id, options));
  }

  /**
   * Resumes a paused sandbox and returns when it runs. If its memory cannot be brought back, it is started again from its files, and
   * `memoryLostReason` of its record says why; `memory` changes that.
   */
  async resume(options: ResumeOptions = {}): Promise<SandboxInfo> {
    return this.known(await this.client.sandboxes.resume(this.id, options));
  }

  /**
   * Makes sandboxes with the memory, processes and files of this one, and returns them when they run. If one of them fails, its error is
   * thrown, and the others are deleted. Never sent twice.
   */
  async fork(options: ForkOptions = {}): Promise<Sandbox[]> {
    const forks = await this.client.sandboxes.fork(this.id, options);
    const failed = forks.find((f) => f.error)?.error;
    const made = forks.flatMap((f) => (f.sandbox ? [new Sandbox(this.client, f.sandbox)] : []));
    if (failed === undefined) return made;
    await Promise.allSettled(made.map((sbx) => sbx.delete()));
    throw failed;
  }

  /** Saves the sandbox's files, and returns when sandboxes can be created from them. Never sent twice. */
  snapshot(options: CreateSnapshotOptions = {}): Promise<Snapshot> {
    return this.client.snapshots.create(this.id, options);
  }

  /** Deletes the sandbox and returns its last record when nothing of it remains. A sandbox that has ended is no error. */
  async delete(options: CallOptions = {}): Promise<SandboxInfo> {
    checkMembers("CallOptions", options, callMembers);
    return this.known(await this.client.sandboxes.delete(this.id, options));
  }

  /** Deletes the sandbox at the end of the scope of `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.delete();
  }

  private known(info: SandboxInfo): SandboxInfo {
    return (this.last = info);
  }
}

/** Returns the record of a new sandbox when it runs, which is to be within `left` seconds, or later if its image is made. */
async function started(client: Modbox, info: SandboxInfo, made: boolean, options: SandboxOptions, left: number): Promise<SandboxInfo> {
  const { signal, onProgress } = options;
  let end = Date.now() + left * 1_000;
  let limit = options.waitSeconds ?? defaultWaitSeconds;
  let step: SandboxEvent | undefined;
  const looking = options.waitSeconds === undefined || onProgress !== undefined;
  for (let afterSeq = 0; ; ) {
    const events = looking ? client.sandboxes.events(info.id, { afterSeq, signal }) : [];
    for await (const event of events) {
      afterSeq = event.seq;
      if (event.type !== "image_building") continue;
      if (step === undefined && options.waitSeconds === undefined) {
        end += (imageWaitSeconds - limit) * 1_000;
        limit = imageWaitSeconds;
      }
      step = event;
      await onProgress?.(event);
    }
    const seconds = Math.min((end - Date.now()) / 1_000, looking ? progressSeconds : maxWaitSeconds);
    if (seconds <= 0) {
      const doing = step ? `; ${step.message}` : "";
      const end = made ? "was deleted" : "was not deleted, because an equal request may have made it";
      throw newError({ code: "timeout", message: `sandbox ${info.name} did not run within ${limit} s and ${end}; waitSeconds sets the limit${doing}` });
    }
    try {
      return await client.sandboxes.wait(info.id, { timeoutSeconds: seconds, signal });
    } catch (err) {
      if (!(err instanceof TimeoutError)) throw err;
    }
  }
}

/** Returns the record of a sandbox when it runs, and resumes it if it is paused. */
async function running(client: Modbox, info: SandboxInfo, options: ConnectOptions): Promise<SandboxInfo> {
  const { signal, memory, waitForQuotaSeconds } = options;
  switch (info.state) {
    case "running":
      return info;
    case "paused":
    case "pausing":
    case "resuming":
      return client.sandboxes.resume(info.id, { signal, memory, waitForQuotaSeconds });
    case "provisioning":
      return client.sandboxes.wait(info.id, { signal });
    default:
      throw endedError(info);
  }
}
