/** A server-sent event. */
export interface Message {
  id: string | undefined;
  event: string | undefined;
  data: string;
}

/** Reads the server-sent events of a body to its end. */
export async function* readMessages(body: ReadableStream<Uint8Array>): AsyncGenerator<Message, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let lines: string[] = [];
  try {
    for (;;) {
      const chunk = await reader.read();
      if (chunk.done) return; // an incomplete event is dropped
      const parts = (rest + decoder.decode(chunk.value, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      for (const line of parts) {
        if (line !== "") {
          lines.push(line);
          continue;
        }
        yield parse(lines);
        lines = [];
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function parse(lines: string[]): Message {
  const message: Message = { id: undefined, event: undefined, data: "" };
  const data: string[] = [];
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") message.id = value;
    if (name === "event") message.event = value;
    if (name === "data") data.push(value);
  }
  message.data = data.join("\n");
  return message;
}
