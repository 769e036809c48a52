import type { Cause, SandboxInfo } from "./schemas.js";
import type { CommandResult } from "./types.js";

/**
 * What a {@link ModboxError} is about. The server's codes are listed in docs/errors.md;
 * `connection`, `bad_response` and `command_failed` are made by this client.
 */
export type ErrorCode =
  | "invalid"
  | "unauthenticated"
  | "forbidden"
  | "code_blocked"
  | "not_found"
  | "file_not_found"
  | "program_not_found"
  | "exists"
  | "conflict"
  | "ended"
  | "not_running"
  | "too_large"
  | "quota_exceeded"
  | "disk_full"
  | "unsupported"
  | "unavailable"
  | "timeout"
  | "agent_unreachable"
  | "port_closed"
  | "internal"
  | "connection"
  | "bad_response"
  | "command_failed";

/** One input field that was refused. */
export interface FieldError {
  /** Path of the field as it is on the wire, e.g. `resources.memory`. */
  field: string;
  message: string;
}

/** The content of a {@link ModboxError}. */
export interface ErrorInfo {
  code: ErrorCode;
  message: string;
  /** HTTP status; 0 when there was no answer. */
  status?: number;
  fields?: FieldError[];
  requestId?: string;
  retryAfterSeconds?: number;
  cause?: unknown;
}

/** Every error this client throws, except for an abort by the caller's own signal. */
export class ModboxError extends Error {
  readonly code: ErrorCode;
  /** HTTP status; 0 when there was no answer. */
  readonly status: number;
  /** The first refused input field, e.g. `ttl_seconds`; undefined when no single one is at fault. */
  readonly field: string | undefined;
  /** Every refused input field. */
  readonly fields: FieldError[];
  /** Names the request in the server's log. */
  readonly requestId: string | undefined;
  /** When the server wants to be asked again; undefined when it did not say. */
  readonly retryAfterSeconds: number | undefined;

  constructor(info: ErrorInfo) {
    super(info.message, info.cause === undefined ? undefined : { cause: info.cause });
    this.name = new.target.name;
    this.code = info.code;
    this.status = info.status ?? 0;
    this.fields = info.fields ?? [];
    this.field = this.fields[0]?.field;
    this.requestId = info.requestId;
    this.retryAfterSeconds = info.retryAfterSeconds;
  }
}

/** The request is malformed or out of range; `field` says where. */
export class ValidationError extends ModboxError {}
/** The token is missing, unknown, expired, or may not do this. */
export class AuthError extends ModboxError {}
/** The policy of the workspace does not let the code run; the message names rules and lines. Nothing ran. */
export class CodeBlockedError extends ModboxError {}
/** No such object, or it is another workspace's. */
export class NotFoundError extends ModboxError {}
/** No such file or directory in the sandbox or snapshot, or a command's `cwd` is missing. */
export class FileNotFoundError extends NotFoundError {}
/** The sandbox does not have the program of the command. */
export class ProgramNotFoundError extends NotFoundError {}
/** A name is taken, or the object's state does not allow this now. */
export class ConflictError extends ModboxError {}
/** The sandbox is gone; the message says why. */
export class EndedError extends ModboxError {}
/** The sandbox failed: it did not start, or broke. */
export class SandboxFailedError extends EndedError {
  /** The reason; `code` is for programs: `image`, `start`, `not_ready`, `oom`, … as docs/errors.md lists them. Undefined if the server does not know it. */
  declare readonly cause: Cause | undefined;
  /** The sandbox's last record. */
  readonly info: SandboxInfo;

  constructor(info: SandboxInfo) {
    super({ code: "ended", message: `sandbox ${info.name} failed: ${info.cause?.message ?? "no reason is known"}`, cause: info.cause });
    this.info = info;
  }
}
/** A limit of the workspace, the server or the sandbox is reached; `retryAfterSeconds` is set if it can clear by itself. */
export class QuotaError extends ModboxError {}
/** A command failed, in a call with `check`, or its exit code cannot be known. */
export class CommandError extends ModboxError {
  /** How the command ended, and its output; undefined if its exit code cannot be known. */
  readonly result: CommandResult | undefined;

  constructor(message: string, result: CommandResult | undefined) {
    super({ code: "command_failed", message });
    this.result = result;
  }
}
/** It did not finish within its time. */
export class TimeoutError extends ModboxError {}
/** The server could not be reached, or the connection broke. */
export class ConnectionError extends ModboxError {}
/** An instruction of a Dockerfile failed. */
export class BuildError extends ModboxError {
  /** Of the Dockerfile. */
  readonly line: number;
  readonly instruction: string;
  /** Of the command that failed; 0 when none did. */
  readonly exitCode: number;

  constructor(info: ErrorInfo & { line: number; instruction: string; exitCode: number }) {
    super(info);
    this.line = info.line;
    this.instruction = info.instruction;
    this.exitCode = info.exitCode;
  }
}

const classes: Partial<Record<ErrorCode, typeof ModboxError>> = {
  invalid: ValidationError,
  unauthenticated: AuthError,
  forbidden: AuthError,
  code_blocked: CodeBlockedError,
  not_found: NotFoundError,
  file_not_found: FileNotFoundError,
  program_not_found: ProgramNotFoundError,
  exists: ConflictError,
  conflict: ConflictError,
  not_running: ConflictError,
  ended: EndedError,
  timeout: TimeoutError,
  quota_exceeded: QuotaError,
  connection: ConnectionError,
};

/** Makes the error of the class that belongs to the code. */
export function newError(info: ErrorInfo): ModboxError {
  return new (classes[info.code] ?? ModboxError)(info);
}

/** For answers that carry no code, such as the answers of a proxy in between. */
const codesByStatus: Record<number, ErrorCode> = {
  400: "invalid",
  401: "unauthenticated",
  403: "forbidden",
  404: "not_found",
  408: "timeout",
  409: "conflict",
  410: "ended",
  413: "too_large",
  422: "invalid",
  429: "unavailable",
  502: "unavailable",
  503: "unavailable",
  504: "timeout",
};

/**
 * Reads the error out of an answer: RFC 9457 (`/v1`), `{"detail": "…"}` and the
 * 422 body `{"detail": [{"loc", "msg"}]}` (the routes without a version).
 */
export async function errorFromResponse(response: Response): Promise<ModboxError> {
  const text = await response.text().catch(() => "");
  let body: Record<string, unknown> = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === "object" && parsed !== null) body = parsed as Record<string, unknown>;
  } catch {
    // Not JSON: a proxy's page. The status has to do.
  }
  const fields = fieldErrors(body);
  const code = typeof body["code"] === "string" ? (body["code"] as ErrorCode) : codesByStatus[response.status];
  const detail =
    (typeof body["detail"] === "string" && body["detail"]) ||
    (typeof body["error"] === "string" && body["error"]) ||
    fields.map((f) => `${f.field}: ${f.message}`).join("; ") ||
    (typeof body["title"] === "string" && body["title"]) ||
    `the server answered ${response.status}`;
  return newError({
    code: code ?? "internal",
    message: detail,
    status: response.status,
    fields,
    requestId: response.headers.get("x-request-id") ?? undefined,
    retryAfterSeconds: Number(response.headers.get("retry-after")) || undefined, // a date is not used by our server
  });
}

function fieldErrors(body: Record<string, unknown>): FieldError[] {
  const list = Array.isArray(body["detail"]) ? body["detail"] : Array.isArray(body["errors"]) ? body["errors"] : [];
  return list.map((item: Record<string, unknown>) => ({
    field: fieldPath(item["loc"] ?? item["location"]),
    message: text(item["msg"] ?? item["message"]),
  }));
}

/** Drops the leading part that says where in the request it is: `body.ttl_seconds` is `ttl_seconds`. */
function fieldPath(location: unknown): string {
  const path = Array.isArray(location) ? location.join(".") : text(location);
  return path.replace(/^(body|query|path|header)\./, "");
}

/** Returns a string, and "" for a value of another type. */
function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
