// Runs the steps of sdk/conformance/scenario.json; its README says what they mean.
import assert from "node:assert/strict";
import { ModboxError } from "modbox-sdk";

/** Calls whose arguments are not one object. */
const calls = {
  "sandboxes.create": (c, { timeouts, ...a }) => c.sandboxes.create(camelKeys({ ...a, timeouts: timeouts && camelKeys(timeouts) })),
  "sandboxes.update_env": (c, { ref, changes }) => c.sandboxes.updateEnv(ref, changes),
  "executions.start": (c, { ref, files, ...a }) => c.executions.start(ref, camelKeys({ ...a, files: files && newFiles(files) })),
  "executions.logs": async (c, { id, ...a }) => Buffer.concat(await collect(c.executions.logs(id, a))).toString(),
  "streams.write": (c, { id, text, ...a }) => c.streams.write(id, text, a),
  "sandboxes.files.write_many": (c, { ref, files }) => c.sandboxes.files.writeMany(ref, newFiles(files)),
  "sandboxes.checkpoints.restore": (c, { ref, checkpoint }) => c.sandboxes.checkpoints.restore(ref, checkpoint),
  "sandboxes.checkpoints.delete": (c, { ref, checkpoint }) => c.sandboxes.checkpoints.delete(ref, checkpoint),
  login: (c, a) => c.constructor.login(a),
  accept_invitation: (c, a) => c.constructor.acceptInvitation(a),
  "account.set_password": (c, { password, ...a }) => c.account.setPassword(password, camelKeys(a)),
  "users.create": (c, { name, ...a }) => c.users.create(name, a),
  "sandbox_images.create": (c, { name, image, ...a }) => c.sandboxImages.create(name, image, camelKeys(a)),
  "images.pull": (c, { image }) => collect(c.images.pull(image)),
  "workspaces.create": (c, { name, ...a }) => c.workspaces.create(name, a),
  "workspaces.add_member": (c, { workspace, name, role }) => c.workspaces.addMember(workspace, { name }, role),
  "snapshots.tag": (c, { snapshot, tag }) => c.snapshots.tag(snapshot, tag),
  "sandboxes.exec_stream": (c, { ref, ...a }) => streamed(c.sandboxes.execStream(ref, camelKeys(a))),
  "sandboxes.run_code": (c, { ref, code, ...a }) => c.sandboxes.runCode(ref, code, camelKeys(a)),
  "sandboxes.run_code_stream": (c, { ref, code, ...a }) => ran(c.sandboxes.runCodeStream(ref, code, camelKeys(a))),
  "sandboxes.contexts.interrupt": (c, { ref, context }) => c.sandboxes.contexts.interrupt(ref, context),
  "sandboxes.contexts.restart": (c, { ref, context }) => c.sandboxes.contexts.restart(ref, context),
  "sandboxes.contexts.delete": (c, { ref, context }) => c.sandboxes.contexts.delete(ref, context),
  "sandboxes.files.write": (c, { ref, path, content, ...a }) => c.sandboxes.files.write(ref, path, Buffer.from(content.base64, "base64"), a),
  "sandboxes.files.page": async (c, { ref, path, ...a }) => {
    const { items, nextCursor } = await c.sandboxes.files.list(ref, path, a);
    return { items, nextCursor };
  },
  "sandboxes.files.move": (c, { ref, from, to, ...a }) => c.sandboxes.files.move(ref, from, to, a),
  get_sandbox: (c, { ref }) => c.getSandbox(ref),
};

async function perform(client, name, args) {
  if (calls[name]) return calls[name](client, args);
  const path = name.split(".").map(camel);
  const method = path.pop();
  const object = path.reduce((o, key) => o[key], client);
  const { ref, port, path: file, id, snapshot, runtime, workspace, who, ...options } = args;
  const result = await object[method](...[ref, port, file, id, snapshot, runtime, workspace, who].filter((v) => v !== undefined), camelKeys(options));
  return result?.[Symbol.asyncIterator] ? collect(result) : result;
}

/** Runs one step; `saved` and `clients` hold what earlier steps saved and became. */
export async function runStep(owner, step, saved, clients) {
  const client = step.as === undefined ? owner : clients[step.as];
  const args = fill(step.args ?? {}, saved);
  if (step.error) {
    const err = await perform(client, step.call, args).then(
      (value) => assert.fail(`no error but ${JSON.stringify(value)}`),
      (err) => err,
    );
    if (!(err instanceof ModboxError)) throw err;
    const { code, status, field, message } = err;
    match({ code, status, field, message }, fill(step.error, saved), "error");
    return;
  }
  const value = await perform(client, step.call, args);
  if (step.become) {
    clients[step.become] = value;
    return;
  }
  const got = plain(value);
  if ("expect" in step) match(got, fill(step.expect, saved), "answer");
  for (const [name, member] of Object.entries(step.save ?? {})) saved[name] = member.split(".").reduce((value, key) => value[key], got);
}

function match(got, want, where) {
  if (want === null) return assert(got === null || got === undefined, where + explain(got, want));
  if (typeof want !== "object") return assert.deepEqual(got, want, where + explain(got, want));
  if (Array.isArray(want)) {
    assert(Array.isArray(got) && got.length === want.length, where + explain(got, want));
    return want.forEach((w, i) => match(got[i], w, `${where}[${i}]`));
  }
  if ("$one_of" in want) return assert(want.$one_of.includes(got), where + explain(got, want));
  if ("$match" in want) return assert.match(String(got), new RegExp(want.$match), where + explain(got, want));
  if ("$length" in want) return assert.equal(got?.length, want.$length, where + explain(got?.length, want));
  if ("$at_least" in want) return assert(got >= want.$at_least, where + explain(got, want));
  if ("$includes" in want) return assert(got.some((g) => matches(g, want.$includes)), where + explain(got, want));
  assert(got !== null && typeof got === "object", where + explain(got, want));
  for (const [key, w] of Object.entries(want)) match(got[key], w, `${where}.${key}`);
}

function matches(got, want) {
  try {
    match(got, want, "");
    return true;
  } catch {
    return false;
  }
}

function explain(got, want) {
  return `: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`;
}

function fill(value, saved) {
  return JSON.parse(JSON.stringify(value).replace(/\$\{(\w+)\}/g, (_, name) => saved[name] ?? assert.fail(`nothing was saved as ${name}`)));
}

/** The answer with the wire's names. No label or the like in the scenario has a capital in its key. */
function plain(value) {
  if (value instanceof Uint8Array) return { base64: Buffer.from(value).toString("base64") };
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k.replace(/[A-Z]/g, (c) => "_" + c.toLowerCase()), plain(v)]));
}

function newFiles(files) {
  return Object.entries(files).map(([path, content]) => ({ path, content }));
}

async function collect(iterable) {
  const list = [];
  for await (const item of iterable) list.push(item);
  return list;
}

async function streamed(events) {
  const out = { types: [], stdout: "", stderr: "" };
  for (const e of await collect(events)) {
    if (!out.types.includes(e.type)) out.types.push(e.type);
    if (e.data) out[e.type] += Buffer.from(e.data).toString();
    if (e.type === "exit") out.exitCode = e.exitCode;
  }
  return out;
}

async function ran(events) {
  const out = { types: [], stdout: "", stderr: "", data: [] };
  for (const e of await collect(events)) {
    if (!out.types.includes(e.type)) out.types.push(e.type);
    if (e.type === "stdout" || e.type === "stderr") out[e.type] += e.text;
    if (e.type === "result") out.data.push(e.result.json);
    if (e.type === "end") out.status = e.status;
  }
  return out;
}

function camel(name) {
  return name.replace(/_(\w)/g, (_, c) => c.toUpperCase());
}

function camelKeys(object) {
  return Object.fromEntries(Object.entries(object).map(([k, v]) => [camel(k), v]));
}
