import assert from "node:assert/strict";
import { test } from "node:test";
import { json, serve } from "../server.mjs";

const screen = { width: 800, height: 600, cursor: { x: 1, y: 2 } };
const wireWindow = { id: "0x1", title: "T", wm_class: "xterm", pid: 3, x: 0, y: 0, width: 4, height: 5, active: true };
const film = { id: "0198f0aa-0000-7000-8000-000000000009", path: "/a.mp4", state: "recording", created_at: "2026-01-02T03:04:05Z", size_bytes: 7 };

test("desktop: every call", async (t) => {
  const s = await serve(t, (r, res) => {
    if (r.path.endsWith("/screenshot")) return res.writeHead(200, { "content-type": "image/png" }).end("png");
    if (r.method === "GET" && r.path.endsWith("/recordings")) return json(res, { items: [film] });
    if (r.path.includes("/recordings") && r.method !== "DELETE") return json(res, film);
    if (r.path.endsWith("/windows")) return json(res, { items: [wireWindow] });
    if (r.path.endsWith("/desktop")) return json(res, screen);
    return res.writeHead(204).end();
  });
  const desktop = s.client().sandboxes.desktop("a b");
  assert.deepEqual(await desktop.screen(), screen);
  assert.deepEqual(await desktop.resize(800, 600), screen);
  assert.deepEqual(await desktop.screenshot({ x: 0, width: 5, height: 6, pointer: true }), new Uint8Array(Buffer.from("png")));
  await desktop.click(1, 2);
  await desktop.doubleClick(1, 2, { hold: ["shift"] });
  await desktop.rightClick(1, 2);
  await desktop.move(1, 2);
  await desktop.drag({ x: 1, y: 2 }, { x: 3, y: 4 });
  await desktop.scroll(1, 2, { direction: "up", amount: 5 });
  await desktop.type("text");
  await desktop.press("ctrl+l");
  await desktop.act([{ type: "wait", durationMs: 5 }]);
  const { wm_class: wmClass, ...window } = wireWindow;
  assert.deepEqual(await desktop.windows(), [{ ...window, wmClass }]);
  await desktop.focus("0x1");
  await desktop.close("0x1");
  await desktop.open("about:blank");
  await desktop.launch(["xterm"]);
  const { created_at: createdAt, size_bytes: sizeBytes, ...rest } = film;
  const recording = { ...rest, createdAt, sizeBytes, endedAt: undefined, error: undefined };
  assert.deepEqual(await desktop.record({ fps: 5, maxSeconds: 6, maxBytes: 7, path: "/a.mp4" }), recording);
  await desktop.recording("r");
  await desktop.stopRecording("r");
  assert.deepEqual(await desktop.recordings().all(), [recording]);
  await desktop.deleteRecording("r");
  const action = (a) => ["POST", "/actions", JSON.stringify({ actions: [a] })];
  const at = { x: 1, y: 2 };
  assert.deepEqual(s.requests.map((r) => [r.method, r.path.replace("/v1/sandboxes/a%20b/desktop", ""), r.query.toString() || r.body.toString()]), [
    ["GET", "", ""],
    ["PATCH", "", '{"width":800,"height":600}'],
    ["GET", "/screenshot", "x=0&width=5&height=6&pointer=true"],
    action({ type: "click", at }),
    action({ type: "click", at, clicks: 2, hold: ["shift"] }),
    action({ type: "click", at, button: "right" }),
    action({ type: "move", at }),
    action({ type: "drag", at, to: { x: 3, y: 4 } }),
    action({ type: "scroll", at, direction: "up", amount: 5 }),
    action({ type: "type", text: "text" }),
    action({ type: "key", keys: "ctrl+l" }),
    action({ type: "wait", duration_ms: 5 }),
    ["GET", "/windows", "limit=1000"],
    ["POST", "/windows/0x1/focus", ""],
    ["DELETE", "/windows/0x1", ""],
    ["POST", "/open", '{"target":"about:blank"}'],
    ["POST", "/open", '{"command":["xterm"]}'],
    ["POST", "/recordings", '{"path":"/a.mp4","fps":5,"max_seconds":6,"max_bytes":7}'],
    ["GET", "/recordings/r", ""],
    ["POST", "/recordings/r/stop", ""],
    ["GET", "/recordings", ""],
    ["DELETE", "/recordings/r", ""],
  ]);
});
