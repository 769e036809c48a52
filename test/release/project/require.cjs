const assert = require("node:assert");
const { ModboxClient } = require("modbox-sdk");

assert.ok(new ModboxClient({ baseUrl: "http://127.0.0.1:9", token: "t" }).sandboxes);
