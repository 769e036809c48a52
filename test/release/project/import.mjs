import assert from "node:assert";
import { ModboxClient } from "modbox-sdk";

assert.ok(new ModboxClient({ baseUrl: "http://127.0.0.1:9", token: "t" }).sandboxes);
