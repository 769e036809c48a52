// An agent of the Vercel AI SDK that runs code in a sandbox.
import { generateText, stepCountIs, tool } from "ai";
import { Sandbox } from "modbox-sdk";
import { z } from "zod";

/** The tools of one sandbox. */
export function sandboxTools(sbx) {
  return {
    run: tool({
      description: "Runs a shell command in a Linux sandbox and returns its output.",
      inputSchema: z.object({ command: z.string() }),
      execute: async ({ command }, { abortSignal }) => {
        const { exitCode, stdout, stderr } = await sbx.run(command, { signal: abortSignal });
        return { exitCode, stdout, stderr };
      },
    }),
  };
}

/** Answers a prompt with any model of the AI SDK, such as openai("gpt-5") of @ai-sdk/openai. */
export function answer(model, prompt) {
  return Sandbox.with({ image: "modbox/code-exec" }, async (sbx) => {
    const { text } = await generateText({ model, prompt, tools: sandboxTools(sbx), stopWhen: stepCountIs(10) });
    return text;
  });
}
