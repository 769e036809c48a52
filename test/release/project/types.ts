import { ModboxClient } from "modbox-sdk";

const modbox = new ModboxClient({ baseUrl: "http://127.0.0.1:9", token: "t" });
export const id: Promise<string> = modbox.sandboxes.create({ image: "modbox/base" }).then((sandbox) => sandbox.id);
// @ts-expect-error no sandbox has a number for its id: the types are not all "any"
export const wrong: Promise<number> = modbox.sandboxes.create({ image: "modbox/base" }).then((sandbox) => sandbox.id);
