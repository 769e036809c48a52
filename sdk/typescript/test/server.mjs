// A scripted server: each test says how requests are answered and looks at what came.
import { createServer } from "node:http";
import { ModboxClient } from "modbox-sdk";

/** Starts a server for one test. `answer(request, response, n)` gets the n-th request, from 0. */
export async function serve(t, answer) {
  const requests = [];
  const server = createServer(async (req, res) => {
    const chunks = [];
    try {
      for await (const chunk of req) chunks.push(chunk);
    } catch {
      return; // the client went away
    }
    const body = Buffer.concat(chunks);
    const url = new URL(req.url, "http://server");
    const request = { method: req.method, path: url.pathname, query: url.searchParams, headers: req.headers, body, raw: req };
    request.json = () => JSON.parse(body.toString());
    requests.push(request);
    await answer(request, res, requests.length - 1);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  const baseUrl = `http://127.0.0.1:${server.address().port}`;
  const client = (options = {}) => new ModboxClient({ token: "mbx_test", baseUrl, ...options });
  return { requests, baseUrl, client };
}

/** Answers with JSON. */
export function json(res, value, status = 200, headers = {}) {
  res.writeHead(status, { "content-type": "application/json", ...headers });
  res.end(JSON.stringify(value));
}

/** Answers with an RFC 9457 error. */
export function problem(res, status, code, more = {}) {
  res.writeHead(status, { "content-type": "application/problem+json", "x-request-id": "r-1" });
  res.end(JSON.stringify({ type: "about:blank", title: "t", status, detail: `it is ${code}`, code, ...more }));
}

/** A sandbox as the wire has it. */
export function wireSandbox(more = {}) {
  return {
    id: "0198f0aa-0000-7000-8000-000000000001",
    name: "a",
    state: "running",
    url: "http://127.0.0.1/s/a-x",
    image: "modbox/code-exec:latest",
    image_digest: "sha256:1",
    labels: { some_key: "v" },
    resources: { memory: "512Mi", cpu: "1", disk: "2Gi" },
    ttl_seconds: 60,
    deadline: "2026-01-01T00:01:00Z",
    timeouts: {},
    network: { enabled: false, ports: [] },
    created_by: "u",
    workspace_id: "w",
    created_at: "2026-01-01T00:00:00Z",
    updated_at: "2026-01-01T00:00:00Z",
    ...more,
  };
}
