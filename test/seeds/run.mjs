// Runs the code of the pages and counts. run.sh prepares what it needs.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ModboxClient } from "modbox-sdk";
import { checkPages, code } from "./blocks.mjs";
import * as http from "./http.mjs";
import * as typescript from "./typescript.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const { MODBOX_URL: url, MODBOX_API_TOKEN: token, PYTHON: python = "/usr/bin/python3" } = process.env;
if (!url || !token) throw new Error("set MODBOX_URL and MODBOX_API_TOKEN");

let passed = 0;
let failed = 0;

function report(name, error) {
  if (!error) passed++;
  else failed++;
  console.log(`${error ? "not ok" : "ok"} ${passed + failed} - ${name}`);
  if (error) console.log(String(error.stack ?? error).replace(/^/gm, "  "));
}

async function runAll(tests) {
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      report(name);
    } catch (err) {
      report(name, err);
    }
  }
}

function runPython(dir, run) {
  const pages = { "ai-coding-agents": 1, "code-execution": 1 };
  for (const [page, count] of Object.entries(pages)) writeFileSync(join(dir, `${page}.py`), code(page, "python", count).join("\n"));
  const env = { ...process.env, PYTHONPATH: join(here, "../../sdk/python/src"), PYTHONDONTWRITEBYTECODE: "1" };
  const { stdout, stderr, status } = spawnSync(python, [join(here, "python.py"), dir, run], { env, encoding: "utf8" });
  for (const line of stdout.trim().split("\n").filter(Boolean)) {
    const { name, error } = JSON.parse(line);
    report(name, error);
  }
  if (status !== 0) report("Python runs", stderr);
}

const cache = join(here, "node_modules/.cache");
mkdirSync(cache, { recursive: true });
const dir = mkdtempSync(join(cache, "seeds-"));
try {
  const run = `seeds-${process.pid}-${Date.now()}`;
  const client = new ModboxClient();
  const image = (await client.listSandboxImages()).find((i) => i.name === "modbox/code-exec" && i.enabled);
  if (!image) throw new Error("the server has no image modbox/code-exec that is built");
  process.env.CODE_EXEC_IMAGE_ID = image.id;

  await runAll({
    "the pages are as published": checkPages,
    "TypeScript compiles under strict": () => typescript.compile(dir),
  });
  await runAll(typescript.tests(dir, client, run));
  runPython(dir, run);
  await runAll(http.tests(client, { url, token, imageId: image.id }));
} catch (err) {
  report("harness", err);
} finally {
  rmSync(dir, { recursive: true, force: true });
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
