// Builds dist/esm and dist/cjs with the pinned TypeScript compiler.
import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const tsc = createRequire(join(root, "package.json")).resolve("typescript/bin/tsc");

rmSync(join(root, "dist"), { recursive: true, force: true });
for (const project of ["tsconfig.json", "tsconfig.cjs.json"]) {
  const { status } = spawnSync(process.execPath, [tsc, "-p", join(root, project)], { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
// The package is "type": "module"; this marks the other half as CommonJS.
mkdirSync(join(root, "dist/cjs"), { recursive: true });
writeFileSync(join(root, "dist/cjs/package.json"), '{ "type": "commonjs" }\n');
