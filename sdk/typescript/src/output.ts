/** Collects a command's output: keeps the first bytes of it, and gives all of it to a callback as text. */
export class Output {
  /** There was more output than the limit. */
  truncated = false;
  private readonly kept = new TextDecoder();
  private readonly all = new TextDecoder();
  private keptText = "";
  private left: number;

  constructor(
    maxBytes: number,
    private readonly callback?: TextCallback,
  ) {
    this.left = maxBytes;
  }

  /** Adds a chunk, and waits for the callback. */
  async add(chunk: Uint8Array): Promise<void> {
    const part = chunk.subarray(0, this.left);
    this.left -= part.length;
    if (part.length < chunk.length) this.truncated = true;
    this.keptText += this.kept.decode(part, { stream: true });
    await this.report(this.all.decode(chunk, { stream: true }));
  }

  /** Ends the output and returns the kept part. */
  async end(): Promise<string> {
    await this.report(this.all.decode());
    return this.keptText + this.kept.decode();
  }

  private async report(text: string): Promise<void> {
    if (text !== "") await this.callback?.(text);
  }
}

/** Called with text as it arrives; a character is never split. When it returns a promise, reading goes on after the promise. */
export type TextCallback = (text: string) => void | Promise<void>;

/** The bytes of each output that results keep when the caller does not say. */
export const defaultOutputBytes = 1 << 20;
