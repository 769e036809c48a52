// The browser of this machine.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";

/** launch starts the browser of this machine. */
export function launch() {
	const names = ["chromium", "chromium-browser", "google-chrome"].flatMap((name) => process.env.PATH.split(delimiter).map((dir) => join(dir, name)));
	const executablePath = names.find((name) => existsSync(name));
	assert.ok(executablePath, "install chromium: scripts/install-deps.sh --test");
	return chromium.launch({ executablePath, args: ["--no-sandbox"] });
}
