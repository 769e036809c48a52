import { Modbox } from "./client.js";
import { CodeBlockedError, newError } from "./errors.js";
import { Sandbox } from "./sandbox.js";
import type { ExecLimits, Finding } from "./schemas.js";
import type { CommandResult, LimitName } from "./types.js";

/** How code runs: its language, limits and imports. */
export interface SandboxConfig {
  /** Default `python`. */
  language?: "python" | "javascript" | "bash" | undefined;
  /** The program is killed after this; default 30. */
  timeoutSeconds?: number | undefined;
  /** The memory of the program with all its processes, at least 16; default 256. */
  maxMemoryMb?: number | undefined;
  /**
   * The packages that the program itself may import: their top-level names. null allows all. Default for Python `json`, `math` and
   * `re`, for other languages null. Not for `bash`.
   */
  allowedImports?: readonly string[] | null | undefined;
  /** Whether programs are scanned before they run: `warn` gives the result the findings, `block` runs no program with findings. Default `off`. */
  scan?: "off" | "warn" | "block" | undefined;
  /** The rules whose findings count; default all. */
  scanRules?: readonly Finding["rule"][] | undefined;
  /** The processor time of the program with all its processes. */
  maxCpuSeconds?: number | undefined;
  /** The size of each file that the program writes. */
  maxFileMb?: number | undefined;
  /** The processes that the program may have at a time. */
  maxProcesses?: number | undefined;
  /** The image of the sandbox, which must have the language; default `modbox/code-exec`. */
  image?: string | undefined;
  /** Variables of the sandbox's environment. */
  env?: Record<string, string> | undefined;
  /** Whether the sandbox has network; default false. */
  network?: boolean | undefined;
  /** The sandbox ends by itself this long after its creation, or in a pool after it was last acquired; default 900. */
  ttlSeconds?: number | undefined;
}

/** The output of code, and how it ended. */
export interface ExecutionResult {
  stdout: string;
  stderr: string;
  /** 128 + signal when a signal ended it. */
  exitCode: number;
  timedOut: boolean;
  /** The limit that it exceeded, and that ended it. */
  limit: LimitName | undefined;
  /** The findings of the scan before it ran: of the scan of the config, or else of the scan that the policy of the workspace demands. */
  findings: Finding[];
  /** It did not run, because of its findings, or by the policy of the workspace, as `stderr` says then; `exitCode` is 1. */
  blocked: boolean;
}

/** The directory in which code runs. */
const workDir = "/tmp/code";
/** The modules that Python code may import unless its config says otherwise. */
const pythonImports = ["json", "math", "re"];
/** The sandbox's memory beyond the limit of its code: the agent, files in memory, and a reserve, so that the limit is hit. */
const spareMb = 256;

/** The file of a program. */
const files = { python: "main.py", javascript: "main.js", bash: "main.sh" } as const;

/**
 * A sandbox that runs programs, each with the limits of its config.
 *
 * The sandbox is created by the first call, and deleted by `close`, at the end of the function of `with` or of the scope of `await using`, or by
 * its `ttlSeconds`.
 * The next program finds the remains of a program, such as files: `reset` removes them, and a {@link SandboxPool} gives each user a
 * sandbox without them. Safe for concurrent use.
 */
export class CodeSandbox {
  readonly config: SandboxConfig;
  /** The directory in which programs run. */
  readonly workDir = workDir;
  private made: Promise<CleanSandbox> | undefined;
  private turn: Promise<unknown> = Promise.resolve();
  private closed = false;

  /** `client` defaults to the client of MODBOX_URL and MODBOX_API_TOKEN. */
  constructor(
    config: SandboxConfig = {},
    private readonly client = new Modbox(),
    made?: CleanSandbox,
  ) {
    const { language = "python" } = config;
    if (!(language in files)) throw new TypeError(`language is ${language}; it must be one of ${Object.keys(files).join(", ")}`);
    if (language === "bash" && config.allowedImports) throw new TypeError("allowedImports has no meaning for bash, which has no imports");
    this.config = config;
    this.made = made && Promise.resolve(made);
  }

  /** Calls a function with a CodeSandbox, and closes it when the function has ended, also by an error. Returns the function's value. */
  static async with<T>(config: SandboxConfig, use: (sandbox: CodeSandbox) => T | Promise<T>, client?: Modbox): Promise<T> {
    const sandbox = new CodeSandbox(config, client);
    try {
      return await use(sandbox);
    } finally {
      await sandbox.close();
    }
  }

  /** Creates the sandbox, unless it exists, and returns it when it runs. Throws code `conflict` after `close`, and after the release to a pool. */
  async start(): Promise<Sandbox> {
    return (await this.clean()).sandbox;
  }

  /**
   * Runs a program to its end, and returns its output and how it ended. Programs run one after the other. A program that fails,
   * exceeds a limit or runs out of time throws nothing. Throws an EndedError when the sandbox has ended, a ProgramNotFoundError
   * when its image does not have the language.
   */
  async execute(code: string): Promise<ExecutionResult> {
    const before = this.turn;
    const run = async () => {
      await before;
      return this.run(await this.start(), code);
    };
    const running = run();
    this.turn = running.catch(() => undefined);
    return running;
  }

  /** Takes the sandbox back to its state after `start`: files, processes, environment, memory, network and ports. */
  async reset(): Promise<void> {
    await restoreClean(await this.clean(), this.config);
  }

  /** Deletes the sandbox; later calls of `execute` throw code `conflict`. */
  async close(): Promise<void> {
    const { made } = this;
    this.retire();
    const clean = await made?.catch(() => undefined);
    await clean?.sandbox.delete();
  }

  /** @internal Makes the object unusable, and leaves the sandbox. */
  retire(): void {
    this.closed = true;
    this.made = undefined;
  }

  /** @internal The sandbox with the checkpoint of its clean state. */
  async clean(): Promise<CleanSandbox> {
    if (this.closed) throw newError({ code: "conflict", message: "this CodeSandbox was closed, or released to its pool: make or acquire another" });
    this.made ??= createClean(this.config, this.client).catch((err: unknown) => {
      this.made = undefined; // the next call tries again
      throw err;
    });
    return this.made;
  }

  /** Deletes the sandbox at the end of the scope of `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  private async run(sandbox: Sandbox, code: string): Promise<ExecutionResult> {
    const { language = "python", timeoutSeconds = 30, allowedImports = language === "python" ? pythonImports : null, scan = "off", scanRules } = this.config;
    let findings: Finding[] = [];
    if (scan !== "off") {
      const found = await sandbox.scanCode(code, { language, allowedImports: allowedImports ?? undefined });
      // A program that was not scanned, or not completely, counts in any case.
      findings = found.findings.filter((f) => !scanRules || scanRules.includes(f.rule) || f.rule === "syntax" || found.truncated);
      if (findings.length > 0 && scan === "block") return blocked(findings);
    }
    const program = { code, path: `${workDir}/${files[language]}`, language, allowedImports: allowedImports ?? undefined };
    let result: CommandResult;
    try {
      result = await sandbox.run(program, { cwd: workDir, timeoutSeconds, limits: limits(this.config) });
    } catch (err) {
      if (!(err instanceof CodeBlockedError)) throw err;
      return { stdout: "", stderr: `${err.message}\n`, exitCode: 1, timedOut: false, limit: undefined, findings, blocked: true };
    }
    if (scan === "off") findings = result.scan?.findings ?? [];
    const { stdout, stderr, exitCode, timedOut, limitExceeded } = result;
    return { stdout, stderr, exitCode, timedOut, limit: limitExceeded, findings, blocked: false };
  }
}

/** @internal A sandbox, and the checkpoint of its clean state. */
export interface CleanSandbox {
  sandbox: Sandbox;
  checkpoint: string;
}

async function createClean(config: SandboxConfig, client: Modbox): Promise<CleanSandbox> {
  const { maxMemoryMb = 256, image = "modbox/code-exec", env = {}, network = false, ttlSeconds = 900 } = config;
  const resources = { memory: `${maxMemoryMb + spareMb}Mi` };
  const sandbox = await Sandbox.create({ client, image, env, network: { enabled: network }, resources, ttlSeconds });
  try {
    await sandbox.files.mkdir(workDir);
    return { sandbox, checkpoint: (await sandbox.checkpoints.create()).id };
  } catch (err) {
    await sandbox.delete().catch(() => undefined); // the first error counts
    throw err;
  }
}

/** The result of a program that does not run. */
function blocked(findings: Finding[]): ExecutionResult {
  const lines = findings.map((f) => `line ${f.line}, column ${f.column}: ${f.rule}: ${f.reason}`);
  const stderr = ["The program was not run:", ...lines, ""].join("\n");
  return { stdout: "", stderr, exitCode: 1, timedOut: false, limit: undefined, findings, blocked: true };
}

/** @internal Takes a sandbox back to its checkpoint. Variables, network and ports are no part of a checkpoint. */
export async function restoreClean({ sandbox, checkpoint }: CleanSandbox, { env = {}, network = false }: SandboxConfig): Promise<void> {
  await sandbox.checkpoints.restore(checkpoint);
  const { sandboxes } = sandbox.client;
  const names = Object.keys(await sandboxes.updateEnv(sandbox.id, {}));
  const changed = { ...Object.fromEntries(names.map((name) => [name, null])), ...env };
  if (Object.keys(changed).length > 0) await sandboxes.updateEnv(sandbox.id, changed);
  await sandboxes.setNetwork(sandbox.id, { enabled: network, ports: [] });
}

/** The limits of one execution. */
function limits({ maxMemoryMb = 256, maxCpuSeconds, maxFileMb, maxProcesses }: SandboxConfig): ExecLimits {
  return {
    memory: `${maxMemoryMb}Mi`,
    cpuSeconds: maxCpuSeconds,
    fileSize: maxFileMb === undefined ? undefined : `${maxFileMb}Mi`,
    processes: maxProcesses,
  };
}
