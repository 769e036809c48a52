// MCP servers of a sandbox: the client starts them by a program of the template, which the workspace has to build.
import assert from "node:assert/strict";
import { test } from "node:test";
import { call, create, current, token } from "./setup.mjs";

const { Sandbox, Template } = current;

// It takes the arguments of E2B's gateway, and its place of the token, and names the servers that it was asked for.
const gateway = `#!/usr/bin/env python3
import http.server, json, os, sys
servers = json.loads(sys.argv[sys.argv.index("--config") + 1])
if "broken" in servers:
    sys.exit("there is no server broken")
token = os.environ["GATEWAY_ACCESS_TOKEN"]
os.makedirs("/etc/mcp-gateway", exist_ok=True)
with open("/etc/mcp-gateway/.token", "w") as f:
    f.write(token)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.headers["Authorization"] == "Bearer " + token else 401)
        self.end_headers()
        self.wfile.write(json.dumps(sorted(servers)).encode())
server = http.server.HTTPServer(("", 50005), Handler)
if os.fork() == 0:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    server.serve_forever()
`;

test("the template mcp-gateway is not available until the workspace builds it", async (t) => {
	assert.equal(await Template.exists("mcp-gateway"), false);
	await assert.rejects(Sandbox.create({ mcp: { time: {} } }), /mcp-gateway of E2B is not available on this server; build a template/);
	await assert.rejects(Sandbox.create("base", { mcp: { time: {} }, metadata: { mcp: "test" } }), /Failed to start MCP gateway: .*mcp-gateway/);
	assert.deepEqual(await Sandbox.list({ query: { metadata: { mcp: "test" } } }).nextItems(), []);

	t.after(() => call("DELETE", "/templates/mcp-gateway", { headers: { "X-API-Key": token } }));
	const encoded = Buffer.from(gateway).toString("base64");
	const template = Template().fromTemplate("base").runCmd(`echo ${encoded} | base64 -d >/usr/local/bin/mcp-gateway && chmod 755 /usr/local/bin/mcp-gateway`, { user: "root" });
	await Template.build(template, "mcp-gateway");
	const sbx = await create(t, Sandbox, { mcp: { time: {}, fetch: {} } });
	const ask = (bearer) => call("GET", "/mcp", { headers: { "E2b-Sandbox-Id": sbx.sandboxId, "E2b-Sandbox-Port": "50005", Authorization: `Bearer ${bearer}` } });
	assert.match(sbx.getMcpUrl(), new RegExp(`^https://50005-${sbx.sandboxId}\\.[^/]+/mcp$`));
	const answer = await ask(await sbx.getMcpToken());
	assert.deepEqual([answer.status, answer.text], [200, '["fetch", "time"]']);
	assert.equal((await ask("wrong")).status, 401);
	// Another program finds the token in the sandbox.
	assert.equal(await (await Sandbox.connect(sbx.sandboxId)).getMcpToken(), await sbx.getMcpToken());
	await assert.rejects(Sandbox.create({ mcp: { broken: {} } }), /Failed to start MCP gateway: there is no server broken/);
});
