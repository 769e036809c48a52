import { ModboxError, newError } from "./errors.js";
import { cut, decodeEvent } from "./exec.js";
import type { HTTP } from "./http.js";
import type { ExecEvent } from "./types.js";
import type * as wire from "./wire.js";

/** A terminal's size in characters. */
export interface TerminalSize {
  rows: number;
  cols: number;
}

/** The members of a WebSocket that a session uses; the WebSockets of Node 22, Bun, Deno and the package `ws` have them. */
export interface WebSocketLike {
  binaryType: string;
  readonly readyState: number;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(): void;
  addEventListener(type: string, listener: (event: never) => void): void;
}

/** Makes a WebSocket whose request has these headers. */
export type WebSocketConstructor = new (url: string, options: { headers: Record<string, string> }) => WebSocketLike;

/** The first byte of a binary message. */
const channels = { stdin: 0, stdout: 1, stderr: 2 } as const;
/** Bound of the unread output: a WebSocket has no flow control, and the output is hostile. */
const maxQueuedBytes = 16 << 20;
/** How much stdin one message carries. */
const maxWriteBytes = 32 << 10;
const open = 1;

/**
 * A command under way with everything: input, terminal, signals. Iterate over it,
 * once, for what it reports; the last event is `exit`, or an error is thrown. More
 * than 16 MiB that nobody reads end it with an error of code `too_large`.
 */
export class Session implements AsyncIterable<ExecEvent> {
  private readonly queue: ExecEvent[] = [];
  private queuedBytes = 0;
  private ended = false;
  private failure: unknown;
  private wake: () => void = () => undefined;

  /** @internal */
  constructor(
    private readonly socket: WebSocketLike,
    private readonly signal: AbortSignal | undefined,
  ) {
    socket.addEventListener("message", (event: { data: string | ArrayBuffer }) => this.receive(event.data));
    socket.addEventListener("close", () => this.end(cut()));
    signal?.addEventListener("abort", this.abort, { once: true });
  }

  /** The reports of the command. Leaving the loop closes the session. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ExecEvent, void, undefined> {
    try {
      for (;;) {
        const event = this.queue.shift();
        if (event !== undefined) {
          if ("data" in event) this.queuedBytes -= event.data.length;
          yield event;
          if (event.type === "exit") return;
        } else if (this.ended) {
          throw this.failure;
        } else {
          await new Promise<void>((resolve) => (this.wake = resolve));
        }
      }
    } finally {
      this.close();
    }
  }

  /** Sends to the command's stdin; text as UTF-8. */
  write(data: string | Uint8Array): void {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    for (let i = 0; i < bytes.length; i += maxWriteBytes) {
      const part = bytes.subarray(i, i + maxWriteBytes);
      const message = new Uint8Array(part.length + 1);
      message[0] = channels.stdin;
      message.set(part, 1);
      this.send(message);
    }
  }

  /** Ends the command's input. */
  closeStdin(): void {
    this.send(JSON.stringify({ type: "stdin_eof" }));
  }

  /** Sets the size of the command's terminal. */
  resize(size: TerminalSize): void {
    this.send(JSON.stringify({ type: "resize", rows: size.rows, cols: size.cols }));
  }

  /** Sends a signal, by number, to the command's process group. */
  kill(signal: number): void {
    this.send(JSON.stringify({ type: "signal", signal }));
  }

  /** Ends the session. A command of `sandboxes.attach` that still runs is killed; an execution goes on. */
  close(): void {
    this.signal?.removeEventListener("abort", this.abort);
    this.end(cut());
    this.socket.close();
  }

  private readonly abort = (): void => {
    this.end(this.signal?.reason);
    this.close();
  };

  private send(message: string | Uint8Array<ArrayBuffer>): void {
    if (this.socket.readyState !== open) throw cut();
    this.socket.send(message);
  }

  private receive(data: string | ArrayBuffer): void {
    if (this.ended) return;
    try {
      const event = typeof data === "string" ? decodeEvent(JSON.parse(data) as wire.StreamMessage) : decodeOutput(new Uint8Array(data));
      if (event === undefined) return;
      this.queue.push(event);
      if ("data" in event) this.queuedBytes += event.data.length;
      if (this.queuedBytes > maxQueuedBytes) {
        throw newError({ code: "too_large", message: `more than ${maxQueuedBytes} bytes of output were not read` });
      }
      this.wake();
    } catch (err) {
      this.end(err instanceof ModboxError ? err : cut(err));
      this.close();
    }
  }

  private end(failure: unknown): void {
    if (this.ended) return;
    this.ended = true;
    this.failure = failure;
    this.wake();
  }
}

function decodeOutput(message: Uint8Array): ExecEvent | undefined {
  const data = message.subarray(1);
  if (message[0] === channels.stdout) return { type: "stdout", data };
  if (message[0] === channels.stderr) return { type: "stderr", data };
  return undefined;
}

/**
 * Connects. A refused WebSocket has no reason: `look`, a call about the
 * same object, is made to find out.
 */
export async function connect(http: HTTP, path: string, look: () => Promise<unknown>, signal?: AbortSignal, first?: unknown): Promise<Session> {
  signal?.throwIfAborted();
  const headers = await http.headers();
  const socket = http.webSocket(path, headers); // no wait from here on: its first event could be missed
  socket.binaryType = "arraybuffer";
  const session = new Session(socket, signal);
  const opened = await new Promise<boolean>((resolve) => {
    socket.addEventListener("open", () => resolve(true));
    socket.addEventListener("error", () => resolve(false));
    socket.addEventListener("close", () => resolve(false));
  });
  if (signal?.aborted) throw signal.reason;
  if (!opened) {
    session.close();
    await look();
    throw newError({ code: "connection", message: `${path}: the server refused the WebSocket, or could not be reached` });
  }
  if (first !== undefined) socket.send(JSON.stringify(first));
  return session;
}
