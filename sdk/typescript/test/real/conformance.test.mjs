// Needs a server: MODBOX_URL and MODBOX_API_TOKEN.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ModboxClient } from "modbox-sdk";
import { runStep } from "./scenario.mjs";

const { steps } = JSON.parse(readFileSync(new URL("../../../conformance/scenario.json", import.meta.url), "utf8"));

test("conformance", async (t) => {
  assert(process.env.MODBOX_URL && process.env.MODBOX_API_TOKEN, "set MODBOX_URL and MODBOX_API_TOKEN");
  const client = new ModboxClient();
  const saved = { run: `ts-${process.pid}-${Date.now()}` };
  const clients = {};
  t.after(() => client.destroySandbox({ taskId: `conformance-${saved.run}` }));
  const without = (process.env.MODBOX_TEST_WITHOUT ?? "").split(",");
  for (const step of steps.filter((step) => !without.includes(step.call))) await t.test(step.name, () => runStep(client, step, saved, clients));
});
