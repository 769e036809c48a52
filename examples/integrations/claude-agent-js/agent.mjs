// An agent of the Claude Agent SDK that runs code in a sandbox, and nothing on this machine.
import { createSdkMcpServer, query, tool } from "@anthropic-ai/claude-agent-sdk";
import { Sandbox } from "modbox-sdk";
import { z } from "zod";

/** The tools of one sandbox, as an MCP server in this process. */
export function sandboxServer(sbx) {
  const run = tool("run", "Runs a shell command in a Linux sandbox and returns its output.", { command: z.string() }, async ({ command }) => {
    const { exitCode, stdout, stderr } = await sbx.run(command);
    return { content: [{ type: "text", text: JSON.stringify({ exitCode, stdout, stderr }) }] };
  });
  return createSdkMcpServer({ name: "sandbox", version: "1.0.0", tools: [run] });
}

/** Answers a prompt. `options` are further options of the SDK, such as the model. */
export function answer(prompt, options = {}) {
  return Sandbox.with({ image: "modbox/code-exec" }, async (sbx) => {
    const messages = query({
      prompt,
      options: {
        mcpServers: { sandbox: sandboxServer(sbx) },
        tools: [], // none of the tools that work on this machine
        allowedTools: ["mcp__sandbox__run"],
        settingSources: [],
        ...options,
      },
    });
    for await (const message of messages) {
      if (message.type !== "result") continue;
      if (message.subtype !== "success") throw new Error(`the agent ended with ${message.subtype}`);
      return message.result;
    }
  });
}
