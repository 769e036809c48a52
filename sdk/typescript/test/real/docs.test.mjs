// Runs the examples of docs/sdk.md. Needs a server: MODBOX_URL and MODBOX_API_TOKEN; and in Node before 22 --experimental-websocket.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ModboxClient } from "modbox-sdk";
import ts from "typescript";

const text = readFileSync(new URL("../../../../docs/sdk.md", import.meta.url), "utf8");
const examples = [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map((m) => m[1]);

test("there are examples", () => assert(examples.length > 0));

for (const [i, example] of examples.entries()) {
  test(`example ${i + 1}`, async () => {
    // `await using` is older than this Node: what people's compilers make of it is run.
    const { outputText } = ts.transpileModule(`async function example() {\n${example}}`, { compilerOptions: { target: "ES2022" } });
    const printed = [];
    const log = (...values) => printed.push(values.join(" ").trim());
    await new Function("modbox", "ModboxClient", "console", `${outputText}; return example();`)(new ModboxClient(), ModboxClient, { log });
    const told = [...example.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].flatMap((m) => m[1].split(" // "));
    assert(told.length > 0);
    assert.deepEqual(printed, told);
  });
}
