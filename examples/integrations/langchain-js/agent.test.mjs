// A scripted model calls the tool on a real sandbox. Needs MODBOX_URL and MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { test } from "node:test";
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage } from "@langchain/core/messages";
import { answer } from "./agent.mjs";

class ScriptedModel extends BaseChatModel {
  _llmType() {
    return "scripted";
  }

  bindTools(tools) {
    assert.deepEqual(tools.map((t) => t.name), ["run"]);
    return this;
  }

  async _generate(messages) {
    const last = messages.at(-1);
    const message =
      last.type === "tool"
        ? new AIMessage(`The tool answered ${last.content}`)
        : new AIMessage({ content: "", tool_calls: [{ id: "1", name: "run", args: { command: "echo $((6*7)); echo no >&2; exit 3" } }] });
    return { generations: [{ text: message.text, message }] };
  }
}

test("the model calls the tool and gets the command's output", async () => {
  assert.equal(await answer(new ScriptedModel({}), "What is 6*7?"), 'The tool answered {"exitCode":3,"stdout":"42\\n","stderr":"no\\n"}');
});
