// The SDK's own program talks to a scripted API on this machine; the tool runs on a real sandbox.
// Needs MODBOX_URL and MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { answer } from "./agent.mjs";

/** The model: calls the tool when it has not, and tells its answer. */
function reply({ tools = [], messages }) {
  const last = messages.at(-1).content;
  const result = Array.isArray(last) ? last.find((c) => c.type === "tool_result") : undefined;
  const run = tools.find((t) => t.name === "mcp__sandbox__run");
  if (result) return [{ type: "text", text: `The tool answered ${text(result.content)}` }, "end_turn"];
  if (run) return [{ type: "tool_use", id: "toolu_1", name: run.name, input: { command: "echo $((6*7)); echo no >&2; exit 3" } }, "tool_use"];
  return [{ type: "text", text: "{}" }, "end_turn"]; // such as for a title of the session
}

function text(content) {
  return typeof content === "string" ? content : content.map((c) => c.text).join("");
}

/** The events of an answer, as the API streams them. */
function events(request) {
  const [block, stop] = reply(request);
  const usage = { input_tokens: 1, output_tokens: 1 };
  const start = block.type === "text" ? { type: "text", text: "" } : { ...block, input: {} };
  const delta = block.type === "text" ? { type: "text_delta", text: block.text } : { type: "input_json_delta", partial_json: JSON.stringify(block.input) };
  const message = { id: "msg_1", type: "message", role: "assistant", model: request.model, content: [], stop_reason: null, stop_sequence: null, usage };
  return [
    { type: "message_start", message },
    { type: "content_block_start", index: 0, content_block: start },
    { type: "content_block_delta", index: 0, delta },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: stop, stop_sequence: null }, usage },
    { type: "message_stop" },
  ];
}

test("the model calls the tool and gets the command's output", { timeout: 300_000 }, async (t) => {
  const server = createServer(async (req, res) => {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    if (!req.url.startsWith("/v1/messages") || req.url.includes("count_tokens")) return res.writeHead(404).end("{}");
    const request = JSON.parse(Buffer.concat(chunks));
    res.writeHead(200, { "content-type": "text/event-stream" });
    res.end(events(request).map((e) => `event: ${e.type}\ndata: ${JSON.stringify(e)}\n\n`).join(""));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const home = await mkdtemp(join(tmpdir(), "claude-"));
  t.after(async () => {
    server.closeAllConnections();
    server.close();
    await rm(home, { recursive: true, force: true });
  });
  const env = {
    PATH: process.env.PATH,
    HOME: home,
    ANTHROPIC_BASE_URL: `http://127.0.0.1:${server.address().port}`,
    ANTHROPIC_API_KEY: "none",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  };
  assert.equal(await answer("What is 6*7?", { env, cwd: home }), 'The tool answered {"exitCode":3,"stdout":"42\\n","stderr":"no\\n"}');
});
