// The code interpreter: results, errors, contexts, interrupts.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { interpreters } from "./setup.mjs";

// Both lines use one sandbox, which the newer makes and the older connects to.
const options = { timeoutMs: 600_000, requestTimeoutMs: 240_000 };
const shared = await interpreters.code.Sandbox.create(options);
after(() => shared.kill());

for (const [line, { NotFoundError, Sandbox, TimeoutError }] of Object.entries(interpreters)) test(`${line}: code in the interpreter`, async (t) => {
	const sbx = line === "code" ? shared : await Sandbox.connect(shared.sandboxId, options);
	await t.test("values, output, state and counts", async () => {
		const seen = { stdout: "", stderr: "", results: 0 };
		const first = await sbx.runCode("import sys\nx = 20\nprint('out')\nprint('err', file=sys.stderr)\nx + 1", {
			onStdout: (o) => (seen.stdout += o.line), onStderr: (o) => (seen.stderr += o.line), onResult: () => seen.results++,
		});
		assert.equal(first.text, "21");
		assert.deepEqual(seen, { stdout: "out\n", stderr: "err\n", results: 1 });
		assert.equal(first.logs.stdout.join(""), "out\n");
		const second = await sbx.runCode("x * 2");
		assert.equal(second.text, "40");
		assert.equal(second.executionCount, first.executionCount + 1);
		assert.equal((await sbx.runCode("'quoted'")).text, "quoted");
		await sbx.files.write("shared.txt", "ü");
		assert.equal((await sbx.runCode("open('shared.txt').read()")).text, "ü");
	});
	await t.test("errors", async () => {
		const { error } = await sbx.runCode("1/0");
		assert.equal(error.name, "ZeroDivisionError");
		assert.match(error.traceback, /ZeroDivisionError/);
		await assert.rejects(sbx.runCode("1", { context: { id: "none", language: "python", cwd: "/" } }), NotFoundError);
	});
	await t.test("formats, charts and tables", async () => {
		const html = await sbx.runCode("from IPython.display import display, HTML, JSON\ndisplay(HTML('<b>x</b>'))\nJSON({'a': 1})");
		assert.equal(html.results[0].html, "<b>x</b>");
		assert.equal(html.results[0].isMainResult, false);
		assert.deepEqual(html.results[1].json, { a: 1 });
		const plot = await sbx.runCode("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='l')\nplt.title('T')\nplt.show()");
		assert.ok(plot.results.some((r) => r.png && Buffer.from(r.png, "base64").subarray(1, 4).toString() === "PNG"));
		const chart = plot.results.find((r) => r.chart).chart;
		assert.deepEqual([chart.type, chart.title, chart.elements[0].points], ["line", "T", [[1, 3], [2, 4]]]);
		const table = await sbx.runCode("import pandas\npandas.DataFrame({'a': [1, 2], 'b': ['x', None]})");
		assert.deepEqual(table.results[0].data, { a: [1, 2], b: ["x", null] });
	});
	await t.test("variables of one run", async () => {
		assert.equal((await sbx.runCode("import os\nos.environ['A1']", { envs: { A1: "v 'ü\n😀" } })).text, "v \\'ü\\n😀".replaceAll("\\'", "'"));
		assert.equal((await sbx.runCode("os.environ.get('A1', 'gone')")).text, "gone");
	});
	await t.test("contexts", async () => {
		const languages = (await sbx.listCodeContexts()).map((c) => c.language);
		assert.ok(languages.includes("python") && languages.includes("javascript"), String(languages));
		const context = await sbx.createCodeContext({ cwd: "/tmp" });
		assert.deepEqual([context.language, context.cwd], ["python", "/tmp"]);
		await sbx.runCode("y = 1", { context });
		assert.equal((await sbx.runCode("import os; os.getcwd(), y", { context })).text, "('/tmp', 1)");
		assert.equal((await sbx.runCode("y")).error.name, "NameError");
		await sbx.restartCodeContext(context);
		assert.equal((await sbx.runCode("y", { context })).error.name, "NameError");
		await sbx.removeCodeContext(context);
		await assert.rejects(sbx.removeCodeContext(context), NotFoundError);
		await assert.rejects(sbx.runCode("1", { context }), NotFoundError);
	});
	await t.test("other languages", async () => {
		assert.equal((await sbx.runCode("const z = [1, 2]; z.length + 1", { language: "js" })).text, "3");
		assert.equal((await sbx.runCode("echo $((1 + 1))", { language: "bash" })).logs.stdout.join(""), "2\n");
		for (const [language, message] of [["cobol", /"cobol" is not known; known are python, javascript, typescript, bash, r and java/], ["java", /apt_packages default-jdk-headless/], ["r", /apt_packages r-cran-irkernel/]]) {
			const says = (err) => err instanceof NotFoundError && message.test(err.message);
			await assert.rejects(sbx.runCode("1", { language }), says);
			await assert.rejects(sbx.createCodeContext({ language }), says);
		}
	});
	await t.test("much output, bytes, and 20 runs at once", async () => {
		const much = await sbx.runCode("print('x' * 3_000_000)");
		assert.equal(much.logs.stdout.join("").length, 3_000_001);
		const wide = await sbx.runCode("print('€😀' * 200_000)"); // pieces of the answer end within characters
		assert.equal(wide.logs.stdout.join(""), "€😀".repeat(200_000) + "\n");
		const png = await sbx.runCode("from IPython.display import Image, display\ndisplay(Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + bytes(range(256)) * 4000, format='png'))");
		const bytes = Buffer.from(png.results[0].png, "base64");
		assert.deepEqual([bytes.length, bytes[8 + 255], bytes[8 + 256]], [8 + 1_024_000, 255, 0]);
		const runs = await Promise.all(Array.from({ length: 20 }, (_, i) => sbx.runCode(`print(${i})\n${i} * 2`)));
		assert.deepEqual(runs.map((run) => [run.text, run.logs.stdout.join("")]), runs.map((_, i) => [`${i * 2}`, `${i}\n`]));
	});
	await t.test("a client that gives up interrupts its code", async () => {
		await assert.rejects(sbx.runCode("import time; time.sleep(1000)", { timeoutMs: 1000 }), TimeoutError);
		assert.equal((await sbx.runCode("1 + 1")).text, "2");
	});
});
