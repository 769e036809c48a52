// The pages' TypeScript. Each page is one module: its blocks in order, unchanged,
// and after them what the harness adds.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { code } from "./blocks.mjs";

const require = createRequire(import.meta.url);

/** What the pages leave open. */
const additions = {
  "ai-coding-agents": `
export { runAgentSession, runMultiStepAgent };
export const agentSteps: { readonly code: string; output?: unknown }[] = [];
`,
  "code-execution": `
export { executeCode, runInSession, getOrCreateSession, tools, handleToolCall };
interface ToolCall { function: { name: string; arguments: string } }
`,
};

const llmClient = `
export const prompts: string[] = [];
/** Answers every prompt with the code that the prompt names. */
export async function generateAgentCode(prompt: string): Promise<string> {
  prompts.push(prompt);
  return prompt;
}
`;

const options = ["--strict", "--target", "es2022", "--lib", "es2022,dom", "--types", "node", "--module", "commonjs", "--skipLibCheck"];

/** Writes the modules into a directory below this one, where their imports are found, and compiles them. */
export function compile(dir) {
  writeFileSync(join(dir, "package.json"), "{}"); // not an ES module
  writeFileSync(join(dir, "your-llm-client.ts"), llmClient);
  const blocks = { "ai-coding-agents": code("ai-coding-agents", "typescript", 2), "code-execution": code("code-execution", "typescript", 3) };
  const files = Object.entries(blocks).map(([page, list]) => {
    writeFileSync(join(dir, `${page}.ts`), list.join("\n") + additions[page]);
    return `${page}.ts`;
  });
  // Named, because a module that is only imported from below node_modules is not written.
  files.push("your-llm-client.ts");
  const tsc = spawnSync(process.execPath, [require.resolve("typescript/bin/tsc"), ...options, ...files], { cwd: dir, encoding: "utf8" });
  assert.equal(tsc.status, 0, tsc.stdout + tsc.stderr);
}

/** Returns the tests, by name. `client` is for looking behind the code's back. */
export function tests(dir, client, run) {
  const load = (name) => require(join(dir, `${name}.js`));
  const withKey = async (key, call) => {
    if (key === undefined) delete process.env.SANDBOX_API_KEY;
    else process.env.SANDBOX_API_KEY = key;
    try {
      return await call();
    } finally {
      delete process.env.SANDBOX_API_KEY;
    }
  };
  const ended = async (taskId) => assert.equal((await client.getSandbox(taskId)).status, "destroyed", `status of ${taskId}`);

  return {
    "agent session: the code runs in its own sandbox, which ends": async () => {
      const { runAgentSession } = load("ai-coding-agents");
      const output = await runAgentSession("import os; print('I am', os.environ['SESSION_ID'])", run);
      assert.equal(output.exitCode, 0, JSON.stringify(output));
      assert.equal(output.stdout, `I am ${run}\n`);
      assert.equal(output.stderr, "");
      assert.equal(load("your-llm-client").prompts.length, 1);
      await ended(`agent-${run}`);
    },

    "agent session: code that fails is told as such": async () => {
      const { runAgentSession } = load("ai-coding-agents");
      const output = await runAgentSession("import sys; sys.exit('no luck')", `${run}-fail`);
      assert.equal(output.exitCode, 1, JSON.stringify(output));
      assert.equal(output.stderr, "no luck\n");
    },

    "multi-step agent: each step sees what the steps before left and put out": async () => {
      const { runMultiStepAgent, agentSteps } = load("ai-coding-agents");
      agentSteps.push(
        { code: "open('/tmp/state', 'w').write('41')" },
        { code: "print(int(open('/tmp/state').read()) + 1)" },
        // As an LLM would, from the output that was fed back.
        { get code() { return `print(${agentSteps[1].output.stdout.trim()} * 2)`; } },
      );
      await runMultiStepAgent(`${run}-steps`);
      assert.deepEqual(agentSteps.map((s) => [s.output?.exitCode, s.output?.stdout]), [[0, ""], [0, "42\n"], [0, "84\n"]]);
      await ended(`agent-${run}-steps`);
    },

    "executeCode: Python, without SANDBOX_API_KEY": () =>
      withKey(undefined, async () => {
        const result = await load("code-execution").executeCode('print("Hello, world!")', "python3");
        const { durationMs, ...rest } = result;
        assert.deepEqual(rest, { exitCode: 0, stdout: "Hello, world!\n", stderr: "" });
        assert(Number.isInteger(durationMs) && durationMs >= 0, `durationMs is ${durationMs}`);
      }),

    "executeCode: Bash, with SANDBOX_API_KEY, and an exit code": () =>
      withKey("secret", async () => {
        const result = await load("code-execution").executeCode('echo "a b" | wc -w; exit 3', "bash");
        assert.deepEqual([result.exitCode, result.stdout], [3, "2\n"]);
      }),

    "session: state persists between calls, and is its user's own": async () => {
      const { runInSession, getOrCreateSession } = load("code-execution");
      const [one, two] = [`${run}-1`, `${run}-2`];
      try {
        const write = await runInSession(one, 'import os; open("/tmp/user", "w").write(os.environ["USER_ID"])');
        assert.equal(write.exitCode, 0, write.stderr);
        assert.equal((await runInSession(one, 'print(open("/tmp/user").read())')).stdout, `${one}\n`);
        const other = await runInSession(two, 'print(open("/tmp/user").read())');
        assert.equal(other.exitCode, 1);
        assert.match(other.stderr, /FileNotFoundError/);
        assert.equal(await getOrCreateSession(one), await getOrCreateSession(one));
        assert.notEqual(await getOrCreateSession(one), await getOrCreateSession(two));
      } finally {
        for (const user of [one, two]) await client.destroySandbox({ taskId: `session-${user}` });
      }
    },

    "tool call: runs the LLM's code, and SANDBOX_API_KEY guards the sandbox": async () => {
      const { tools, handleToolCall } = load("code-execution");
      const taskId = `tool-${run}`;
      const call = { function: { name: tools[0].function.name, arguments: JSON.stringify({ code: 'print("from a tool")' }) } };
      try {
        await client.provisionSandbox({ taskId, ttlSeconds: 3600, envVars: { SANDBOX_API_KEY: "secret" } });
        await client.waitForSandbox({ taskId, timeout: 600 });
        const { sandboxUrl } = await client.getSandbox(taskId);
        const answer = await withKey("secret", () => handleToolCall(call, sandboxUrl));
        assert.equal(answer, "stdout:\nfrom a tool\n\nstderr:\n\nexitCode: 0");
        for (const key of [undefined, "wrong"]) {
          assert.match(await withKey(key, () => handleToolCall(call, sandboxUrl)), /exitCode: undefined/, `key ${key}`);
        }
      } finally {
        await client.destroySandbox({ taskId });
      }
    },
  };
}
