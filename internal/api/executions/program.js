// Runs the program in the file argv[1], whose own calls of require are limited to argv[2], a JSON list or null.
const Module = require("node:module");
const [path, allowed] = [process.argv[1], JSON.parse(process.argv[2])];
const folder = path.slice(0, path.lastIndexOf("/") + 1);
const load = Module._load;
if (allowed !== null) Module._load = function (request, parent, isMain) {
  const name = request.replace(/^node:/, "");
  if (!isMain && parent?.filename?.startsWith(folder) && !/^[./]/.test(name) && !allowed.includes(name.split("/")[0]) && !allowed.includes(name))
    throw new Error(`require of '${request}' is not allowed; allowed are ${allowed.join(", ") || "none"}`);
  return load.apply(this, arguments);
};
process.argv.splice(1, 2, path);
Module._load(path, null, true);
