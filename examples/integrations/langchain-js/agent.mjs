// An agent of LangChain.js that runs code in a sandbox.
import { createAgent, tool } from "langchain";
import { Sandbox } from "modbox-sdk";
import { z } from "zod";

/** The tools of one sandbox. */
export function sandboxTools(sbx) {
  const run = tool(
    async ({ command }, { signal }) => {
      const { exitCode, stdout, stderr } = await sbx.run(command, { signal });
      return JSON.stringify({ exitCode, stdout, stderr });
    },
    {
      name: "run",
      description: "Runs a shell command in a Linux sandbox and returns its output.",
      schema: z.object({ command: z.string() }),
    },
  );
  return [run];
}

/** Answers a prompt with any chat model of LangChain, such as new ChatOpenAI() of @langchain/openai. */
export function answer(model, prompt) {
  return Sandbox.with({ image: "modbox/code-exec" }, async (sbx) => {
    const agent = createAgent({ model, tools: sandboxTools(sbx) });
    const { messages } = await agent.invoke({ messages: [{ role: "user", content: prompt }] });
    return messages.at(-1).text;
  });
}
