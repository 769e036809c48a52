// The requests and tables of the pages.
import assert from "node:assert/strict";
import json5 from "json5";
import { code, table } from "./blocks.mjs";

/** Reads requests as the pages write them: a line with method and path, then perhaps a body. */
function requests(block) {
  const list = [];
  for (const line of block.split("\n")) {
    const head = /^(GET|POST|PUT|DELETE) (\/\S*)$/.exec(line);
    if (head) list.push({ method: head[1], path: head[2], body: "" });
    else if (line !== "" && !line.startsWith("#")) list.at(-1).body += line;
  }
  return list;
}

/** Returns the tests, by name; they run in order. */
export function tests(client, { url, token, imageId }) {
  const bash = code("sandboxes", "bash", 4).map(requests);
  const bodies = code("sandboxes", "json", 2);
  const [[provision], [wait, detail], lists, [destroy]] = bash;
  const state = {};

  const send = async ({ method, path }, body, headers = {}) => {
    const response = await fetch(url + path, {
      method,
      headers: { authorization: `Bearer ${token}`, ...(body ? { "content-type": "application/json" } : {}), ...headers },
      body,
    });
    return { status: response.status, body: await response.json() };
  };
  const taskId = json5.parse(bodies[0]).task_id;

  return {
    "HTTP provision: answers at once": async () => {
      await client.destroySandbox({ taskId }); // of an earlier run that broke off
      const body = { ...json5.parse(bodies[0]), image_id: imageId };
      const got = await send(provision, JSON.stringify(body));
      assert.equal(got.status, 200, JSON.stringify(got));
      assert.equal(got.body.success, true);
      assert.equal(got.body.error, null);
      assert.equal(got.body.status, "provisioning");
      state.id = got.body.sandbox_id;
    },

    "HTTP provision: the page's placeholder of an image is refused as a field": async () => {
      const got = await send(provision, JSON.stringify(json5.parse(bodies[0])));
      assert.equal(got.status, 422);
      assert.deepEqual(got.body.detail[0].loc, ["body", "image_id"]);
    },

    "HTTP wait: ready": async () => {
      const got = await send(wait, wait.body);
      assert.equal(got.status, 200, JSON.stringify(got));
      assert.equal(got.body.ready, true);
      assert.equal(typeof got.body.elapsed_seconds, "number");
    },

    "HTTP detail: has every field of the page": async () => {
      const got = await send({ ...detail, path: detail.path.replace("{sandbox_id}", state.id) });
      assert.equal(got.status, 200, JSON.stringify(got));
      const sandbox = got.body;
      for (const { Field } of table("sandboxes", "Field")) assert(Field in sandbox, `no ${Field}`);
      assert.deepEqual([sandbox.id, sandbox.name, sandbox.status, sandbox.destroyed_at], [state.id, taskId, "running", null]);
      state.url = sandbox.sandbox_url;
    },

    "HTTP sandbox_url: the sandbox has the variables it was given": async () => {
      const got = await fetch(`${state.url}/modbox/api/exec`, { method: "POST", body: JSON.stringify({ command: "printenv MY_VAR" }) });
      assert.equal((await got.json()).stdout, "my-value\n");
    },

    "HTTP list: all, running, provisioning, and of a workspace": async () => {
      const { workspaceId } = await client.whoami();
      const found = [];
      for (const request of lists) {
        const got = await send(request, undefined, { "X-Workspace-Id": workspaceId });
        assert.equal(got.status, 200, JSON.stringify(got));
        found.push(got.body.sandboxes.some((s) => s.id === state.id));
      }
      assert.deepEqual(found, [true, true, false]);
      const foreign = await send(lists[0], undefined, { "X-Workspace-Id": crypto.randomUUID() });
      assert.equal(foreign.status, 404);
    },

    "HTTP destroy: the sandbox is gone": async () => {
      const got = await send(destroy, destroy.body);
      assert.deepEqual([got.status, got.body], [200, { success: true, error: null }]);
      const after = await send({ ...detail, path: detail.path.replace("{sandbox_id}", state.id) });
      assert.equal(after.body.status, "destroyed");
      assert.equal(after.body.sandbox_url, null);
      assert.notEqual(after.body.destroyed_at, null);
      assert.equal((await fetch(state.url)).status, 410);
    },

    "HTTP ttl: the name can be used again, and the sandbox has an end": async () => {
      try {
        const body = json5.parse(bodies[1]);
        const got = await send(provision, JSON.stringify(body));
        assert.equal(got.status, 200, JSON.stringify(got));
        assert.notEqual(got.body.sandbox_id, state.id);
        const sandbox = await client.sandboxes.get(got.body.sandbox_id);
        assert.equal(Date.parse(sandbox.deadline) - Date.parse(sandbox.createdAt), body.ttl_seconds * 1000);
      } finally {
        await client.destroySandbox({ taskId });
      }
    },

    "languages: each of the page is in the image, in its version or a newer one": async () => {
      const { id } = await client.sandboxes.create({ imageId, ttlSeconds: 3600, waitSeconds: 600 });
      try {
        for (const { Language, Version, Invocation } of table("code-execution", "Invocation")) {
          const [program] = Invocation.split(" ");
          const flag = program === "go" ? "version" : "--version";
          const { stdout, stderr } = await client.sandboxes.exec(id, { command: [program, flag] });
          const [got, want] = [/\d+(\.\d+)+/.exec(stdout)?.[0], Version].map((v) => v?.split(".").map(Number));
          assert(got, `${Language}: ${stdout}${stderr}`);
          const newer = got[0] > want[0] || (got[0] === want[0] && got[1] >= (want[1] ?? 0));
          assert(newer, `${Language} ${Version}: the image has ${stdout}`);
        }
      } finally {
        await client.sandboxes.delete(id);
      }
    },
  };
}
