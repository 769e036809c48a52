// Builds the pages into internal/console/dist, where the program embeds them: every file but the first
// page packed by gzip, and beside them the licences of the bundled packages.
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const out = join(import.meta.dirname, "../internal/console/dist");

/** packed replaces each file but index.html by NAME.gz, which is the same for the same content. */
function packed(): Plugin {
	return {
		name: "packed",
		closeBundle() {
			for (const name of readdirSync(out, { recursive: true, encoding: "utf8" })) {
				const file = join(out, name);
				if (name === "index.html" || name === ".gitignore" || statSync(file).isDirectory()) continue;
				writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }));
				rmSync(file);
			}
			writeFileSync(join(out, ".gitignore"), "*\n!.gitignore\n");
		},
	};
}

export default defineConfig({
	plugins: [react(), packed()],
	html: { cspNonce: "__NONCE__" },
	build: { outDir: out, emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false }, license: { fileName: "licenses.md" } },
});
