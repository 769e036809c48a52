import { ModboxError } from "./errors.js";

/**
 * Reads a stream of JSON objects, one a line. It has no end of its own: its reader knows which
 * object is the last and leaves; that the stream ends before, or breaks off, throws what `cut` makes of it.
 */
export async function* readLines<T>(
  body: ReadableStream<Uint8Array>,
  cut: (cause?: unknown) => ModboxError,
  signal?: AbortSignal,
): AsyncGenerator<T, never, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const chunk = await reader.read();
      if (chunk.done) throw cut();
      const lines = (rest + decoder.decode(chunk.value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) yield JSON.parse(line) as T;
    }
  } catch (err) {
    if (err instanceof ModboxError || signal?.aborted) throw err;
    throw cut(err);
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
