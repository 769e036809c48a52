// Runs the examples of docs/sdk.md. Needs a server: MODBOX_URL and MODBOX_API_TOKEN; and in Node before 22 --experimental-websocket.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as sdk from "modbox-sdk";

const text = readFileSync(new URL("../../../../docs/sdk.md", import.meta.url), "utf8");
const examples = [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map((m) => m[1]);

test("there are examples", () => assert(examples.length > 0));

for (const [i, example] of examples.entries()) {
  test(`example ${i + 1}`, async () => {
    // Run as it is, without a compiler: this Node has to understand it.
    const printed = [];
    const log = (...values) => printed.push(values.join(" ").trim());
    const AsyncFunction = (async () => undefined).constructor;
    await new AsyncFunction("modbox", "console", ...Object.keys(sdk), example)(new sdk.Modbox(), { log }, ...Object.values(sdk));
    const told = [...example.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].flatMap((m) => m[1].split(" // "));
    assert(told.length > 0);
    assert.deepEqual(printed, told);
  });
}
