// An agent of the OpenAI Agents SDK that runs code in a sandbox.
import { Agent, run, tool } from "@openai/agents";
import { Sandbox } from "modbox-sdk";
import { z } from "zod";

/** The tools of one sandbox. */
export function sandboxTools(sbx) {
  const runCommand = tool({
    name: "run",
    description: "Runs a shell command in a Linux sandbox and returns its output.",
    parameters: z.object({ command: z.string() }),
    execute: async ({ command }) => {
      const { exitCode, stdout, stderr } = await sbx.run(command);
      return { exitCode, stdout, stderr };
    },
  });
  return [runCommand];
}

/** Answers a prompt with a model: the name of one of OpenAI's, or a Model. */
export function answer(model, prompt) {
  return Sandbox.with({ image: "modbox/code-exec" }, async (sbx) => {
    const agent = new Agent({ name: "coder", instructions: "You solve tasks in a Linux sandbox.", model, tools: sandboxTools(sbx) });
    return (await run(agent, prompt)).finalOutput;
  });
}
