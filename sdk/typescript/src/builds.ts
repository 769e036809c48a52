import { fromBase64 } from "./base64.js";
import * as schemas from "./schemas.js";
import { BuildError, newError, type ErrorCode, type ModboxError } from "./errors.js";
import type { PullEvent } from "./images.js";
import { newKey } from "./key.js";
import { readLines } from "./lines.js";
import type { FileContent } from "./types.js";
import type * as wire from "./wire.js";
import type { BuildImageOptions } from "./schemas.js";

/** A report of a build; the last report is `done`. */
export type BuildEvent =
  /** A `cached` step comes after the same step without it: its layer was there. */
  | { type: "step"; step: number; steps: number; stage: string; line: number; instruction: string; cached: boolean }
  | { type: "output"; data: Uint8Array }
  | { type: "warning"; message: string }
  | PullEvent;

/** The parts of a build as multipart/form-data. A stream is sent as it is read, everything else can be read again. */
export function encodeBuild(files: FileContent, o: BuildImageOptions): { body: BodyInit; contentType: string } {
  const options: wire.ImageBuild = { ...schemas.encodeBuildImageOptions(o), dockerfile: o.path };
  const boundary = `modbox-${newKey()}`;
  const part = (head: string) => `--${boundary}\r\nContent-Disposition: form-data; ${head}\r\n\r\n`;
  let head = `${part('name="options"\r\nContent-Type: application/json')}${JSON.stringify(options)}\r\n`;
  if (o.dockerfile !== undefined) head += `${part('name="dockerfile"')}${o.dockerfile}\r\n`;
  head += part('name="context"; filename="context.tar"\r\nContent-Type: application/octet-stream');
  const tail = `\r\n--${boundary}--\r\n`;
  const body = files instanceof ReadableStream ? joined(head, files, tail) : new Blob([head, files, tail]);
  return { body, contentType: `multipart/form-data; boundary=${boundary}` };
}

function joined(head: string, middle: ReadableStream<Uint8Array>, tail: string): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const reader = middle.getReader();
  return new ReadableStream({
    start: (controller) => controller.enqueue(encoder.encode(head)),
    async pull(controller) {
      const { done, value } = await reader.read();
      controller.enqueue(done ? encoder.encode(tail) : value);
      if (done) controller.close();
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** Reads the events of a build or a transfer of an image. It ends after the image, and throws the server's error, or an error for a broken connection. */
export async function* readProgress(
  what: string,
  body: ReadableStream<Uint8Array>,
  signal: AbortSignal | undefined,
): AsyncGenerator<BuildEvent, void, undefined> {
  const cut = (cause?: unknown): ModboxError =>
    newError({ code: "connection", message: `${what}: the connection broke before the end was known`, cause });
  for await (const w of readLines<wire.ImageBuildMessage>(body, cut, signal)) {
    if (w.type === "error") throw failure(w);
    const event = decodeEvent(w, cut);
    if (event === undefined) continue;
    yield event;
    if (event.type === "done") return;
  }
}

/** Leaves out unknown types: a newer server may send more. */
function decodeEvent(w: wire.ImageBuildMessage, cut: () => ModboxError): BuildEvent | undefined {
  switch (w.type) {
    case "step":
      return {
        type: "step",
        step: w.step ?? 0,
        steps: w.steps ?? 0,
        stage: w.stage ?? "",
        line: w.line ?? 0,
        instruction: w.instruction ?? "",
        cached: w.cached ?? false,
      };
    case "output":
      return { type: "output", data: fromBase64(w.data ?? "") };
    case "warning":
      return { type: "warning", message: w.message ?? "" };
    case "progress":
      return { type: "progress", phase: w.phase ?? "", done: w.done ?? 0, total: w.total || undefined, message: w.message ?? "" };
    case "done":
      if (w.image === undefined) throw cut();
      return { type: "done", image: schemas.image(w.image) };
    default:
      return undefined;
  }
}

function failure(w: wire.ImageBuildMessage): ModboxError {
  const info = { code: (w.code as ErrorCode) ?? "internal", message: w.message ?? "the server gave no reason" };
  if (!w.line) return newError(info);
  return new BuildError({ ...info, line: w.line, instruction: w.instruction ?? "", exitCode: w.exit_code ?? 0 });
}
