// A scripted model calls the tool on a real sandbox. Needs MODBOX_URL and MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MockLanguageModelV3 } from "ai/test";
import { answer } from "./agent.mjs";

test("the model calls the tool and gets the command's output", async () => {
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const model = new MockLanguageModelV3({
    doGenerate: async ({ prompt }) => {
      const last = prompt.at(-1);
      if (last.role !== "tool") {
        const call = { type: "tool-call", toolCallId: "1", toolName: "run", input: JSON.stringify({ command: "echo $((6*7)); echo no >&2; exit 3" }) };
        return { content: [call], finishReason: { unified: "tool-calls" }, usage, warnings: [] };
      }
      const { exitCode, stdout, stderr } = last.content[0].output.value;
      const text = `The command printed ${stdout.trim()} and ${stderr.trim()}, and ended with ${exitCode}.`;
      return { content: [{ type: "text", text }], finishReason: { unified: "stop" }, usage, warnings: [] };
    },
  });
  assert.equal(await answer(model, "What is 6*7?"), "The command printed 42 and no, and ended with 3.");
});
