import { fromBase64 } from "./base64.js";
import { newError, type ErrorCode, type ModboxError } from "./errors.js";
import { checkMembers, type Members } from "./known.js";
import { readLines } from "./lines.js";
import { codeScan, encodeCommandOptions } from "./schemas.js";
import type * as wire from "./wire.js";
import type { ExecEvent, ExecResult, LimitName, Program, ProgramOptions } from "./types.js";

const programMembers: Members<Program> = { code: true, path: true, language: true, allowedImports: true };

export function encodeProgramOptions(o: ProgramOptions): Partial<wire.Exec> {
  const { program: p } = o;
  checkMembers("Program", p, programMembers);
  const program = p && { code: p.code, path: p.path, language: p.language, allowed_imports: p.allowedImports && [...p.allowedImports] };
  return { ...encodeCommandOptions(o), program };
}

export function decodeResult<Output>(w: wire.ExecResult, output: (text: string) => Output): ExecResult<Output> {
  return {
    exitCode: w.exit_code,
    signal: w.signal ?? 0,
    timedOut: w.timed_out,
    ...limitOf(w),
    stdout: output(w.stdout),
    stderr: output(w.stderr),
    stdoutTruncated: w.stdout_truncated,
    stderrTruncated: w.stderr_truncated,
    durationMs: w.duration_ms,
    ...(w.scan && { scan: codeScan(w.scan) }),
  };
}

/**
 * Reads the lines of an exec stream. It ends after `exit`, throws the server's
 * error, and throws when the stream breaks off: an exit is never made up.
 * Ending the iteration early closes the connection, which kills the command.
 */
export async function* readEvents(body: ReadableStream<Uint8Array>, signal?: AbortSignal): AsyncGenerator<ExecEvent, void, undefined> {
  for await (const line of readLines<wire.StreamMessage>(body, cut, signal)) {
    const event = decodeEvent(line);
    if (event === undefined) continue;
    yield event;
    if (event.type === "exit") return;
  }
}

/** Leaves out unknown types: a newer server may send more. */
export function decodeEvent(w: wire.StreamMessage): ExecEvent | undefined {
  switch (w.type) {
    case "started":
      return { type: "started", pid: w.pid ?? 0, ...(w.scan && { scan: codeScan(w.scan) }) };
    case "stdout":
    case "stderr":
      return { type: w.type, data: fromBase64(w.data ?? "") };
    case "exit":
      return {
        type: "exit",
        exitCode: w.exit_code ?? 0,
        signal: w.signal ?? 0,
        timedOut: w.timed_out ?? false,
        ...limitOf(w),
        durationMs: w.duration_ms ?? 0,
      };
    case "error":
      throw newError({ code: (w.code as ErrorCode) ?? "internal", message: w.message ?? "the server gave no reason" });
    default:
      return undefined;
  }
}

/** The member for the limit that a command exceeded; none without one. */
function limitOf(w: { limit_exceeded?: LimitName }): { limitExceeded?: LimitName } {
  return w.limit_exceeded === undefined ? {} : { limitExceeded: w.limit_exceeded };
}

/** That a connection broke before the end was known. */
export function cut(cause?: unknown): ModboxError {
  return newError({ code: "connection", message: "the connection broke before the command's end was known", cause });
}
