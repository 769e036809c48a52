// The names of Modbox in docs/migrate-from-e2b.md are those of the SDK.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Modbox, Sandbox } from "modbox-sdk";
import * as sdk from "modbox-sdk";
import { json, serve, wireSandbox } from "../server.mjs";

test("docs/migrate-from-e2b.md names calls that exist", async (t) => {
  const s = await serve(t, (_, res) => json(res, wireSandbox(), 201));
  const sbx = await Sandbox.create({ client: s.client() });
  const roots = { sbx, Sandbox, Modbox, client: s.client() };
  const text = readFileSync(new URL("../../../../docs/migrate-from-e2b.md", import.meta.url), "utf8");
  // The second column of the tables.
  const cells = [...text.matchAll(/^\|[^|]*\|([^|]*)\|/gm)].map((m) => m[1]);
  let checked = 0;
  for (const cell of cells) {
    for (const [, code] of cell.matchAll(/`([^`]*)`/g)) {
      for (const [path, root, rest] of code.matchAll(/\b(sbx|Sandbox|client)((?:\.\w+)+)/g)) {
        let value = roots[root];
        for (const name of rest.slice(1).split(".")) {
          assert(value !== undefined && name in Object(value), `${path} in ${cell}: no ${name}`);
          value = value[name];
          if (typeof value === "function") break;
        }
        checked++;
      }
      for (const [name] of code.matchAll(/\b[A-Z]\w*Error\b/g)) assert(name in sdk, `${name} in ${cell}`);
    }
  }
  assert(checked > 25, `${checked} names`);
});
