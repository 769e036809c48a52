// Compares the code of README.md, and runs the code of docs/tutorial.md, as one program, and of docs/recipes.md. Needs a server: MODBOX_URL and
// MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import ts from "typescript";

// Programs import the package by its name, so they are below its directory.
const dir = mkdtempSync(fileURLToPath(new URL("../../tmp-guides-", import.meta.url)));
after(() => rmSync(dir, { recursive: true }));

/** examples returns the TypeScript code of a page. */
function examples(page) {
  const text = readFileSync(new URL(`../../../../${page}`, import.meta.url), "utf8");
  return [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map((m) => m[1]);
}

/** printedBy runs a program and returns the lines that it prints. */
async function printedBy(name, code) {
  const { outputText } = ts.transpileModule(code, { compilerOptions: { target: "ES2022", module: "ESNext" } });
  writeFileSync(`${dir}/${name}.mjs`, outputText);
  const { stdout } = await promisify(execFile)(process.execPath, [`${dir}/${name}.mjs`], { timeout: 600_000 });
  return stdout.trimEnd().split("\n");
}

/** run runs a program and compares its output with the comments behind its calls of console.log. */
async function run(name, code) {
  const expected = [...code.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].flatMap((m) => m[1].split(" // "));
  assert(expected.length > 0);
  assert.deepEqual(await printedBy(name, code), expected);
}

// It begins with examples/typescript/agent.mjs, which examples/run.sh runs.
test("README", () => {
  const [code] = examples("README.md");
  assert(code.split("\n").length <= 15, "more than 14 lines");
  assert.equal(code, readFileSync(new URL("../../../../examples/typescript/agent.mjs", import.meta.url), "utf8"));
});

test("tutorial", () => run("tutorial", examples("docs/tutorial.md").join("\n")));

const recipes = examples("docs/recipes.md");
test("there are recipes", () => assert(recipes.length > 5));
for (const [i, code] of recipes.entries()) test(`recipe ${i + 1}`, () => run(`recipe-${i + 1}`, code));
