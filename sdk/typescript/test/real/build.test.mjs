// Dockerfiles and registries. Needs a server, MODBOX_URL and MODBOX_API_TOKEN, and at MODBOX_TEST_REGISTRY one of
// test/registry, which that server takes (images.insecure_registries).
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { BuildError, ModboxClient } from "modbox-sdk";

const user = { username: "ann", password: "pl4in-passw0rd" };
const client = new ModboxClient();

/** A tar of files by their names. */
function tarOf(files) {
  const dir = mkdtempSync(join(tmpdir(), "build-"));
  try {
    for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, name), text);
    return execFileSync("tar", ["-C", dir, "-c", "."], { stdio: ["ignore", "pipe", "inherit"] });
  } finally {
    rmSync(dir, { recursive: true });
  }
}

/** Everything that a build, push or pull tells. */
async function all(events) {
  const told = [];
  for await (const e of events) told.push(e);
  assert.equal(told.at(-1).type, "done");
  return told;
}

const output = (told) => Buffer.concat(told.filter((e) => e.type === "output").map((e) => e.data)).toString();

/** What a command prints in a new sandbox of the image. */
async function printed(image, shell) {
  const sandbox = await client.sandboxes.create({ image, ttlSeconds: 3600, waitSeconds: 600 });
  try {
    return (await client.sandboxes.exec(sandbox.id, { shell })).stdout;
  } finally {
    await client.sandboxes.delete(sandbox.id);
  }
}

const files = {
  Dockerfile: `FROM modbox/base
ARG GREETING=nothing
COPY greeting.txt /srv/greeting.txt
RUN echo "$GREETING $(tr a-z A-Z < /srv/greeting.txt)" | tee /srv/loud.txt
`,
  "greeting.txt": "hello from a file\n",
};
const loud = "Say HELLO FROM A FILE\n";

test("an image is built, run, pushed with a password, discarded and pulled again", async (t) => {
  const host = process.env.MODBOX_TEST_REGISTRY;
  assert(host, "set MODBOX_TEST_REGISTRY");
  const tag = `${host}/team/app:ts-${process.pid}-${Date.now()}`;
  const built = await all(client.images.build(tarOf(files), { tag, buildArgs: { GREETING: "Say" }, noCache: true }));
  assert.equal(output(built), loud);
  assert.deepEqual(
    built.filter((e) => e.type === "step").map((e) => [e.step, e.steps, e.line, e.instruction.split(" ")[0], e.cached]),
    [[1, 4, 1, "FROM", false], [2, 4, 2, "ARG", false], [3, 4, 3, "COPY", false], [4, 4, 4, "RUN", false]],
  );
  const { image } = built.at(-1);
  assert.equal(image.ref, tag);
  assert.equal(await printed(tag, "cat /srv/loud.txt"), loud);
  assert((await client.images.list().all()).some((i) => i.id === image.id));
  const { id, base, layers } = await client.images.get(tag);
  assert.deepEqual([id, base, layers[0].base, layers.at(-1).base], [image.id, "modbox/base:latest", true, false]);
  assert.match(layers.at(-1).createdBy, /tr a-z A-Z/);

  // Nothing is sent without the password.
  await assert.rejects(all(client.images.push(tag)), /other credentials/);
  await assert.rejects(client.registries.create({ name: tag, server: host, ...user, password: "wrong", verify: true }), { field: "password" });
  const registry = await client.registries.create({ name: tag, server: host, ...user, verify: true });
  t.after(() => client.registries.delete(registry.id));
  const pushed = await all(client.images.push(tag));
  assert.equal(pushed.at(-1).image.ref, tag);
  await all(client.images.push(tag, { to: `${tag}-copy` }));

  await client.images.delete(image.id);
  assert(!(await client.images.list().all()).some((i) => i.id === image.id));
  for (const ref of [tag, `${tag}-copy`]) {
    const pulled = await all(client.images.pull(ref));
    assert.equal(pulled.at(-1).image.ref, ref);
    assert.equal(await printed(ref, "cat /srv/loud.txt"), loud);
  }

  // A build can push by itself; a stream is sent as it is read, and the layers are there by now.
  const again = `${tag}-again`;
  const body = new Blob([tarOf(files)]).stream();
  const told = await all(client.images.build(body, { tag: again, buildArgs: { GREETING: "Say" }, push: true }));
  assert.deepEqual(told.filter((e) => e.type === "step" && e.cached).map((e) => e.instruction.split(" ")[0]), ["COPY", "RUN"]);
  await client.images.delete(told.at(-1).image.id);
  assert.equal((await all(client.images.pull(again))).at(-1).image.ref, again);
});

test("an instruction that fails is told by its line", async () => {
  const dockerfile = "FROM modbox/base\nRUN echo before; exit 3\n";
  let said = "";
  const build = async () => {
    for await (const e of client.images.build(tarOf(files), { dockerfile, noCache: true })) if (e.type === "output") said += Buffer.from(e.data);
  };
  await assert.rejects(build(), (err) => err instanceof BuildError && err.line === 2 && err.exitCode === 3 && err.instruction.startsWith("RUN"));
  assert.equal(said, "before\n");
});
