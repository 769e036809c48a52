// Takes code and tables out of the pages in testdata.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { marked } from "marked";

const testdata = new URL("testdata/", import.meta.url);

/** Throws when a page differs from the published page. */
export function checkPages() {
  for (const line of readFileSync(new URL("SHA256SUMS", testdata), "utf8").trim().split("\n")) {
    const [want, name] = line.split(/\s+/);
    const got = createHash("sha256").update(readFileSync(new URL(name, testdata))).digest("hex");
    if (got !== want) throw new Error(`testdata/${name} was changed`);
  }
}

function tokens(page) {
  return marked.lexer(readFileSync(new URL(`${page}.md`, testdata), "utf8"));
}

/** The code of a page in one language, in order. Throws when it is not as many blocks as expected. */
export function code(page, language, count) {
  const blocks = tokens(page).filter((t) => t.type === "code" && t.lang === language).map((t) => t.text);
  if (blocks.length !== count) throw new Error(`${page} has ${blocks.length} blocks of ${language}, want ${count}`);
  return blocks;
}

/** The rows of the page's table that has this column, as objects without markup. */
export function table(page, column) {
  const plain = (cell) => cell.text.replaceAll("`", "").trim();
  const found = tokens(page).find((t) => t.type === "table" && t.header.some((h) => plain(h) === column));
  if (!found) throw new Error(`${page} has no table with a column ${column}`);
  return found.rows.map((row) => Object.fromEntries(row.map((cell, i) => [plain(found.header[i]), plain(cell)])));
}
