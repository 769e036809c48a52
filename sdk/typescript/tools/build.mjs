// Builds dist/esm and dist/cjs with the pinned TypeScript compiler, unless they are current.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const tsc = createRequire(join(root, "package.json")).resolve("typescript/bin/tsc");

// A second build at the same time would remove dist under the first one, or under the tests after it. It waits where there is flock.
if (!process.env.MODBOX_SDK_LOCKED) {
  const command = [process.execPath, fileURLToPath(import.meta.url)];
  const { error, status } = spawnSync("flock", [join(root, "src"), ...command], { stdio: "inherit", env: { ...process.env, MODBOX_SDK_LOCKED: "1" } });
  if (error?.code !== "ENOENT") process.exit(status ?? 1);
}

// What they are made of. The mark is not in dist, which is published.
const mark = join(root, "node_modules/.built");
const sources = readdirSync(join(root, "src"), { recursive: true, withFileTypes: true }).filter((file) => file.isFile());
const inputs = sources.map((file) => join(file.parentPath, file.name)).sort();
for (const file of ["package.json", "package-lock.json", "tsconfig.json", "tsconfig.cjs.json", "tools/build.mjs"]) inputs.push(join(root, file));
const hash = createHash("sha256").update(process.version);
for (const file of inputs) hash.update(`\0${relative(root, file)}\0`).update(readFileSync(file));
const sum = hash.digest("hex");
if (existsSync(join(root, "dist/cjs/package.json")) && existsSync(mark) && readFileSync(mark, "utf8") === sum) process.exit();

rmSync(join(root, "dist"), { recursive: true, force: true });
for (const project of ["tsconfig.json", "tsconfig.cjs.json"]) {
  const { status } = spawnSync(process.execPath, [tsc, "-p", join(root, project)], { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
// The package is "type": "module"; this marks the other half as CommonJS.
mkdirSync(join(root, "dist/cjs"), { recursive: true });
writeFileSync(join(root, "dist/cjs/package.json"), '{ "type": "commonjs" }\n');
writeFileSync(mark, sum);
