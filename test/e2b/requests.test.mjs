// How requests reach the servers of a sandbox, by the options of the clients: with another host, and by HTTPS.
import assert from "node:assert/strict";
import http from "node:http";
import https from "node:https";
import { test } from "node:test";
import { call, create, lines, networkOf, url } from "./setup.mjs";

/** server answers requests, and opened WebSockets, with the host that it saw; by TLS if it gets a certificate. */
const server = `
import base64, hashlib, http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        text = (("https " if len(sys.argv) > 2 else "http ") + self.headers["Host"]).encode()
        if self.headers.get("Upgrade"):
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers()
            self.wfile.write(bytes([0x81, len(text)]) + text)
            self.rfile.read(1)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("cert.pem", "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
`;
const certificate = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=nobody.test -days 2 -keyout key.pem -out cert.pem";

/** overWebSocket opens a WebSocket and resolves to the first message. */
const overWebSocket = (headers) => new Promise((resolve, reject) => {
	const req = (url.startsWith("https:") ? https : http).get(url, {
		headers: { ...headers, Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==" },
	});
	req.on("error", reject);
	req.on("response", (res) => reject(new Error(`no WebSocket but ${res.statusCode}`)));
	req.on("upgrade", (_, socket, head) => {
		let got = head;
		const look = () => {
			if (got.length < 2 || got.length < 2 + got[1]) return;
			resolve(got.subarray(2, 2 + got[1]).toString());
			socket.destroy();
		};
		socket.on("error", reject).on("data", (chunk) => {
			got = Buffer.concat([got, chunk]);
			look();
		});
		look();
	});
});

for (const [line, { InvalidArgumentError, Sandbox, SandboxError }] of Object.entries(lines)) test(`${line}: requests with another host, and by HTTPS`, async (t) => {
	// The older line knows only the host.
	const byHTTPS = line !== "2.45";
	const network = { maskRequestHost: "localhost:${PORT}", ...(byHTTPS && { httpsPorts: [8443] }) };
	const sbx = await create(t, Sandbox, { network });
	const told = async (sandbox) => {
		const { maskRequestHost, httpsPorts } = await networkOf(sandbox);
		return { maskRequestHost, ...(httpsPorts && { httpsPorts }) };
	};
	assert.deepEqual(await told(sbx), network);
	await sbx.files.write("server.py", server);
	await sbx.commands.run(certificate);
	for (const args of ["3000", byHTTPS ? "8443 tls" : "8443"]) {
		const running = await sbx.commands.run(`exec python3 server.py ${args}`, { background: true, timeoutMs: 0 });
		running.wait().catch(() => {}); // its stream ends with the sandbox
	}
	await sbx.commands.run("for port in 3000 8443; do for i in $(seq 600); do (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && continue 2; sleep 0.1; done; exit 1; done", { timeoutMs: 180_000 });
	const sees = async (sandbox, port, want) => {
		const headers = { "E2b-Sandbox-Id": sandbox.sandboxId, "E2b-Sandbox-Port": String(port) };
		const res = await call("GET", "/", { headers });
		assert.deepEqual([res.status, res.text], [200, want]);
		assert.equal(await overWebSocket(headers), want);
	};
	const seesBoth = async (sandbox) => {
		await sees(sandbox, 3000, "http localhost:3000");
		await sees(sandbox, 8443, byHTTPS ? "https localhost:8443" : "http localhost:8443");
	};
	await seesBoth(sbx);
	// Neither a change of the destinations nor a fork or a pause changes it.
	await sbx.updateNetwork({ allowInternetAccess: false });
	const [fork] = await sbx.fork();
	t.after(() => fork.kill());
	await sbx.pause();
	await Sandbox.connect(sbx.sandboxId);
	for (const sandbox of [sbx, fork]) {
		assert.deepEqual(await told(sandbox), network);
		await seesBoth(sandbox);
	}
	// The client's own port is not concerned, and cannot be.
	assert.equal((await sbx.commands.run("echo ok")).stdout, "ok\n");
	const refused = (field) => (err) => err instanceof SandboxError && !(err instanceof InvalidArgumentError) && new RegExp(`^400: network.${field}`).test(err.message);
	if (byHTTPS) for (const port of [0, 49983, 65536]) await assert.rejects(Sandbox.create({ network: { httpsPorts: [port] } }), refused("httpsPorts"));
	await assert.rejects(Sandbox.create({ network: { maskRequestHost: "a\r\nX-Header: b" } }), refused("maskRequestHost"));
});
