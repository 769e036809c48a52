// A scripted model calls the tool on a real sandbox. Needs MODBOX_URL and MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Usage, setTracingDisabled } from "@openai/agents";
import { answer } from "./agent.mjs";

setTracingDisabled(true); // traces would be sent to OpenAI

class ScriptedModel {
  async getResponse({ input, tools }) {
    assert.deepEqual(tools.map((t) => t.name), ["run"]);
    const last = input.at(-1);
    const output =
      last.type === "function_call_result"
        ? { type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text: `The tool answered ${text(last.output)}` }] }
        : { type: "function_call", callId: "1", name: "run", status: "completed", arguments: JSON.stringify({ command: "echo $((6*7)); echo no >&2; exit 3" }) };
    return { usage: new Usage(), output: [output] };
  }

  getStreamedResponse() {
    throw new Error("not used");
  }
}

function text(output) {
  return typeof output === "string" ? output : output.text;
}

test("the model calls the tool and gets the command's output", async () => {
  assert.equal(await answer(new ScriptedModel(), "What is 6*7?"), 'The tool answered {"exitCode":3,"stdout":"42\\n","stderr":"no\\n"}');
});
