import { fromBase64 } from "./base64.js";
import * as schemas from "./schemas.js";
import { newError, type ErrorCode } from "./errors.js";
import { cut } from "./exec.js";
import { readLines } from "./lines.js";
import type { HTTP } from "./http.js";
import { callMembers, checkMembers, type Members } from "./known.js";
import { waitSlackMs } from "./limits.js";
import { pages, type PagePromise } from "./page.js";
import { sandboxPath, segment } from "./path.js";
import type { CallOptions, LimitName, PageOptions } from "./types.js";
import type * as wire from "./wire.js";
import type { CodeContext, CodeError, CodeScan, ExecLimits } from "./schemas.js";

/** The server's default for code without a timeout. */
const defaultCodeSeconds = 60;

/** Where code runs and for how long. Give either `language` or `contextId`. */
export interface RunCodeOptions extends CallOptions {
  /** `python` (default), `javascript`, `typescript`, `bash` or `r`: the code runs in the default context of the language. */
  language?: string | undefined;
  /** The id of the context in which the code runs. */
  contextId?: string | undefined;
  /** Seconds until the code is interrupted; the server's default, 60, when omitted. */
  timeoutSeconds?: number | undefined;
  /** Limits of the context while the code runs, in place of the limits of the context: `limitExceeded` of the result names the limit that the code exceeded. */
  limits?: ExecLimits | undefined;
}

/** How code is scanned. */
export interface ScanCodeOptions extends CallOptions {
  /** Default `python`. */
  language?: "python" | "javascript" | "typescript" | "bash" | undefined;
  /** The packages that the code may import, by their top-level names; all when omitted. */
  allowedImports?: readonly string[] | undefined;
}

/** The interpreter of a new context. */
export interface CreateContextOptions extends CallOptions {
  /** `python` (default), `javascript`, `typescript`, `bash` or `r`. */
  language?: string | undefined;
  /** Working directory; default the image's. */
  cwd?: string | undefined;
  /** Environment variables in addition to the sandbox's. */
  env?: Record<string, string> | undefined;
  /** Limits for code that has none of its own. */
  limits?: ExecLimits | undefined;
}

/** A figure of Matplotlib as data. docs/run-code.md lists the members that it has beside these, by its type. */
export interface Chart {
  /** `line`, `scatter`, `bar`, `pie`, `box_and_whisker`, or `superchart`, whose elements are charts. */
  type: string;
  title: string;
  elements: Record<string, unknown>[];
  [member: string]: unknown;
}

/** A data frame as data: a Tabular Data Resource, of the first rows. */
export interface Table {
  schema: Record<string, unknown>;
  /** Rows, by the names of the columns. */
  data: Record<string, unknown>[];
  /** The size of the data frame, which may have more rows and columns than `data`. */
  total_rows: number;
  total_columns: number;
  [member: string]: unknown;
}

/** How a run of code ended: `error` is an error of the code, `lost` the end of its interpreter. */
export type CodeStatus = "ok" | "error" | "interrupted" | "timed_out" | "lost";

/** A value of code: of its last expression (`main`), or displayed by it. It has one or more formats; a format that it lacks is undefined. */
export class CodeOutput {
  /** The value of the last expression. */
  readonly main: boolean;
  /** The formats by MIME type as on the wire: text, base64 for images and PDF, JSON values for JSON types. */
  readonly data: Record<string, unknown>;
  /** The name by which the code can replace the value. */
  readonly displayId: string | undefined;
  /** MIME types whose values were too large and are missing from `data`. */
  readonly omitted: string[];

  /** @internal */
  constructor(w: wire.CodeOutput) {
    this.main = w.main;
    this.data = w.data;
    this.displayId = w.display_id;
    this.omitted = w.omitted ?? [];
  }

  /** `text/plain`. */
  get text(): string | undefined {
    return this.string("text/plain");
  }

  /** `text/html`. */
  get html(): string | undefined {
    return this.string("text/html");
  }

  /** `text/markdown`. */
  get markdown(): string | undefined {
    return this.string("text/markdown");
  }

  /** `text/latex`. */
  get latex(): string | undefined {
    return this.string("text/latex");
  }

  /** `image/svg+xml`, as text. */
  get svg(): string | undefined {
    return this.string("image/svg+xml");
  }

  /** `image/png`, in bytes. */
  get png(): Uint8Array<ArrayBuffer> | undefined {
    return this.bytes("image/png");
  }

  /** `image/jpeg`, in bytes. */
  get jpeg(): Uint8Array<ArrayBuffer> | undefined {
    return this.bytes("image/jpeg");
  }

  /** `application/pdf`, in bytes. */
  get pdf(): Uint8Array<ArrayBuffer> | undefined {
    return this.bytes("application/pdf");
  }

  /** `application/json`, as a value. */
  get json(): unknown {
    return this.data["application/json"];
  }

  /** A figure of Matplotlib as data: its points, labels and axes. */
  get chart(): Chart | undefined {
    return this.object<Chart>("application/vnd.modbox.chart+json");
  }

  /** A data frame as data: its columns and first rows. */
  get table(): Table | undefined {
    return this.object<Table>("application/vnd.dataresource+json");
  }

  private object<T>(type: string): T | undefined {
    const value = this.data[type];
    return typeof value === "object" && value !== null ? (value as T) : undefined;
  }

  private string(type: string): string | undefined {
    const value = this.data[type];
    return typeof value === "string" ? value : undefined;
  }

  private bytes(type: string): Uint8Array<ArrayBuffer> | undefined {
    const text = this.string(type);
    return text === undefined ? undefined : fromBase64(text);
  }
}

/** The result of a run of code. The accessors answer a format of the first value that has it, and undefined without such a value. */
export class CodeResult {
  /** The context in which the code ran. */
  contextId = "";
  /** The context's interpreter had ended and was started again: the state of earlier code is lost. */
  restarted = false;
  /** How the code ended. */
  status: CodeStatus = "ok";
  /** The limit that it exceeded. Code that exceeds `cpu` or `file_size` is interrupted; for `memory` and `processes` the interpreter ends, and its state is lost. */
  limitExceeded: LimitName | undefined;
  /** The number of the execution in its interpreter; 0 in Bash, which counts none. */
  executionCount = 0;
  /** Milliseconds from its start to its end. */
  durationMs = 0;
  stdout = "";
  stderr = "";
  /** The value of the last expression, and all values that the code displayed, in their order. */
  results: CodeOutput[] = [];
  /** The code's error, if it failed. */
  error: CodeError | undefined;
  /** The code printed more than 16 MiB; the rest was dropped. */
  truncated = false;
  /** The findings of the scan that the policy of the workspace (`code_scan`) demands. */
  scan: CodeScan | undefined;

  /** The text of the main value, which is the value of the last expression. */
  get text(): string | undefined {
    return this.results.find((r) => r.main)?.text;
  }

  get html(): string | undefined {
    return this.first((r) => r.html);
  }

  get markdown(): string | undefined {
    return this.first((r) => r.markdown);
  }

  get latex(): string | undefined {
    return this.first((r) => r.latex);
  }

  get svg(): string | undefined {
    return this.first((r) => r.svg);
  }

  get png(): Uint8Array<ArrayBuffer> | undefined {
    return this.first((r) => r.png);
  }

  get jpeg(): Uint8Array<ArrayBuffer> | undefined {
    return this.first((r) => r.jpeg);
  }

  get pdf(): Uint8Array<ArrayBuffer> | undefined {
    return this.first((r) => r.pdf);
  }

  get json(): unknown {
    return this.first((r) => r.json);
  }

  /** The first figure of Matplotlib, as data. */
  get chart(): Chart | undefined {
    return this.first((r) => r.chart);
  }

  /** The first data frame, as data. */
  get table(): Table | undefined {
    return this.first((r) => r.table);
  }

  /**
   * Adds what an event says.
   * @internal
   */
  add(event: CodeEvent): void {
    switch (event.type) {
      case "started":
        this.contextId = event.contextId;
        this.restarted = event.restarted;
        this.scan = event.scan;
        return;
      case "stdout":
      case "stderr":
        this[event.type] += event.text;
        return;
      case "result": {
        const { displayId } = event.result;
        const at = event.update ? this.results.findIndex((r) => r.displayId === displayId) : -1;
        if (at < 0) this.results.push(event.result);
        else this.results[at] = event.result;
        return;
      }
      case "error":
        this.error = event.error;
        return;
      case "end":
        this.status = event.status;
        this.limitExceeded = event.limitExceeded;
        this.executionCount = event.executionCount;
        this.durationMs = event.durationMs;
        this.truncated = event.truncated;
    }
  }

  private first<T>(format: (r: CodeOutput) => T | undefined): T | undefined {
    for (const r of this.results) {
      const value = format(r);
      if (value !== undefined) return value;
    }
    return undefined;
  }
}

/** An event of code under way: `started` comes first, `end` last. With `update` a result replaces the earlier one with its `displayId`. */
export type CodeEvent =
  | { type: "started"; contextId: string; restarted: boolean; scan?: CodeScan }
  | { type: "stdout" | "stderr"; text: string }
  | { type: "result"; result: CodeOutput; update: boolean }
  | { type: "error"; error: CodeError }
  | { type: "end"; status: CodeStatus; limitExceeded?: LimitName; executionCount: number; durationMs: number; truncated: boolean };

const runCodeMembers: Members<RunCodeOptions> = { ...callMembers, language: true, contextId: true, timeoutSeconds: true, limits: true };
const scanCodeMembers: Members<ScanCodeOptions> = { ...callMembers, language: true, allowedImports: true };
const createContextMembers: Members<CreateContextOptions> = { ...callMembers, language: true, cwd: true, env: true, limits: true };

/** Runs code to its end in one request. */
export async function runCode(http: HTTP, ref: string, code: string, options: RunCodeOptions): Promise<CodeResult> {
  const w = await http.json<wire.CodeResult>({
    method: "POST",
    path: sandboxPath(ref, "/code"),
    json: body(code, options),
    signal: options.signal,
    timeoutMs: (options.timeoutSeconds ?? defaultCodeSeconds) * 1_000 + waitSlackMs,
    repeatable: false,
  });
  return Object.assign(new CodeResult(), {
    contextId: w.context_id,
    restarted: w.restarted,
    status: w.status,
    limitExceeded: w.limit_exceeded,
    executionCount: w.execution_count,
    durationMs: w.duration_ms,
    stdout: w.stdout,
    stderr: w.stderr,
    results: w.results.map((r) => new CodeOutput(r)),
    error: w.error && schemas.codeError(w.error),
    truncated: w.truncated,
    scan: w.scan && schemas.codeScan(w.scan),
  });
}

/** Parses code in the sandbox, without running it. */
export async function scanCode(http: HTTP, ref: string, code: string, options: ScanCodeOptions): Promise<CodeScan> {
  checkMembers("ScanCodeOptions", options, scanCodeMembers);
  const { signal, language, allowedImports } = options;
  const json: wire.ScanCode = { code, language, allowed_imports: allowedImports && [...allowedImports] };
  const w = await http.json<wire.CodeScan>({ method: "POST", path: sandboxPath(ref, "/code/scan"), json, signal, repeatable: true });
  return schemas.codeScan(w);
}

/** Runs code and gives its events; ending the iteration early interrupts the code. */
export async function* runCodeStream(http: HTTP, ref: string, code: string, options: RunCodeOptions): AsyncGenerator<CodeEvent, void, undefined> {
  const response = await http.raw({
    method: "POST",
    path: sandboxPath(ref, "/code/stream"),
    json: body(code, options),
    signal: options.signal,
    repeatable: false,
  });
  if (response.body === null) throw newError({ code: "bad_response", message: "the answer has no body", status: response.status });
  for await (const w of readLines<wire.CodeEvent>(response.body, cut, options.signal)) {
    const event = decode(w);
    if (event === undefined) continue;
    yield event;
    if (event.type === "end") return;
  }
}

function body(code: string, options: RunCodeOptions): wire.RunCode {
  checkMembers("RunCodeOptions", options, runCodeMembers);
  const { language, contextId, timeoutSeconds, limits } = options;
  return { code, language, context_id: contextId, timeout_seconds: timeoutSeconds, limits: limits && schemas.encodeExecLimits(limits) };
}

/** Answers undefined for types that are not known, which a newer server may send. */
function decode(w: wire.CodeEvent): CodeEvent | undefined {
  switch (w.type) {
    case "started":
      return { type: "started", contextId: w.context_id ?? "", restarted: w.restarted ?? false, ...(w.scan && { scan: schemas.codeScan(w.scan) }) };
    case "stdout":
    case "stderr":
      return { type: w.type, text: w.text ?? "" };
    case "result":
      return w.result && { type: "result", result: new CodeOutput(w.result), update: w.update ?? false };
    case "error":
      return w.error && { type: "error", error: schemas.codeError(w.error) };
    case "end":
      return {
        type: "end",
        status: w.status as CodeStatus,
        ...(w.limit_exceeded && { limitExceeded: w.limit_exceeded }),
        executionCount: w.execution_count ?? 0,
        durationMs: w.duration_ms ?? 0,
        truncated: w.truncated ?? false,
      };
    case "failure":
      throw newError({ code: (w.code as ErrorCode) ?? "internal", message: w.message ?? "the server gave no reason" });
    default:
      return undefined;
  }
}

/**
 * The contexts of a sandbox: interpreters that keep their state between runs of code. `ref` is the sandbox's id or name,
 * `context` a context's id. Safe for concurrent use.
 */
export class Contexts {
  constructor(private readonly http: HTTP) {}

  /** Makes a context. Throws code `unsupported` if the sandbox does not have the language, and `quota_exceeded` for a 33rd context. Never sent twice. */
  async create(ref: string, options: CreateContextOptions = {}): Promise<CodeContext> {
    checkMembers("CreateContextOptions", options, createContextMembers);
    const { signal, language, cwd, env, limits } = options;
    const json: wire.CreateContext = { language, cwd, env, limits: limits && schemas.encodeExecLimits(limits) };
    const path = sandboxPath(ref, "/contexts");
    return schemas.context(await this.http.json<wire.Context>({ method: "POST", path, json, signal, repeatable: false }));
  }

  /** Lists the contexts, the oldest first. */
  list(ref: string, options: PageOptions = {}): PagePromise<CodeContext> {
    return pages(this.http, options, () => ({ path: sandboxPath(ref, "/contexts") }), schemas.context);
  }

  /** Interrupts the code that runs in a context; its run ends with status `interrupted`. The context keeps its state. */
  async interrupt(ref: string, context: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "POST", path: contextPath(ref, context, "/interrupt"), signal: options.signal, repeatable: false });
  }

  /** Starts the interpreter of a context again, without its state. */
  async restart(ref: string, context: string, options: CallOptions = {}): Promise<CodeContext> {
    checkMembers("CallOptions", options, callMembers);
    const path = contextPath(ref, context, "/restart");
    return schemas.context(await this.http.json<wire.Context>({ method: "POST", path, signal: options.signal, repeatable: false }));
  }

  /** Ends a context and the code that runs in it. */
  async delete(ref: string, context: string, options: CallOptions = {}): Promise<void> {
    checkMembers("CallOptions", options, callMembers);
    await this.http.done({ method: "DELETE", path: contextPath(ref, context), signal: options.signal, repeatable: false });
  }
}

function contextPath(ref: string, context: string, call = ""): string {
  return sandboxPath(ref, `/contexts/${segment(context)}${call}`);
}
