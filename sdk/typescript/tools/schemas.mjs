// Makes src/schemas.ts from api/openapi.yaml: the types of answers with the functions that decode them, and the options
// of calls with the functions that encode them.
//
//     node schemas.mjs            writes the file
//     node schemas.mjs --check    exits with 1 when the file is not what this program would write
//
// Names are in camel case, except the keys of maps. A member that the document does not require is undefined when it is
// absent, except lists, maps and booleans, which are empty, and those in `empty`.
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { load } from "js-yaml";

const root = join(dirname(fileURLToPath(import.meta.url)), "../../..");
const target = join(root, "sdk/typescript/src/schemas.ts");
const document = load(readFileSync(join(root, "api/openapi.yaml"), "utf8"));
const schemas = document.components.schemas;

/** The schemas of answers, with their names where these differ from the schemas' names. */
const answers = {
  Cause: "", PublishedPort: "", PortLink: "", SandboxNetwork: "", Sandbox: "SandboxInfo", FileInfo: "", OriginalFile: "", FileChange: "", SnapshotFile: "", SnapshotDownload: "", Event: "SandboxEvent",
  Stats: "", Usage: "", Point: "", Desktop: "DesktopScreen", DesktopWindow: "", Recording: "", ImageLayer: "", Image: "", SandboxImage: "", PrunedImage: "", PrunedImages: "", Requirements: "", Runtime: "", InvalidAptPackage: "",
  ValidatedAptPackages: "AptPackageChecks", OutputStream: "", Execution: "", Context: "CodeContext", CodeError: "", Finding: "", CodeScan: "", Checkpoint: "", Snapshot: "", Registry: "", Token: "", NewToken: "", SSHKey: "",
  SignInSession: "", Whoami: "Identity", Version: "ServerVersion", User: "", NewUser: "", Member: "", Workspace: "", WorkspaceDetail: "",
  Invitation: "", NewInvitation: "", AddedMember: "", DiskUse: "", QuotaUsed: "", QuotaReport: "", AuditRecord: "", AuditEntry: "", AuditReport: "",
  Webhook: "", NewWebhook: "", WebhookDelivery: "", Worker: "",
  Host: "", HostResource: "", HostSandboxes: "", HostImages: "", HostPool: "", HostTemplates: "", HostWaiting: "", HostOperation: "",
};
/** The schemas that callers give, too: all their members are optional. */
const given = { Resources: "", ExecLimits: "", Timeouts: "", Network: "NetworkOptions", Quota: "" };
/** The types that are decoded by hand. */
const typesOnly = new Set(["SnapshotFile", "Network"]);
/** The types that extend another, whose members they do not repeat. */
const bases = { SnapshotFile: "FileInfo", NewToken: "Token", NewUser: "User", WorkspaceDetail: "Workspace", NewInvitation: "Invitation", NewWebhook: "Webhook" };
/** The members whose words have a type of their own. */
const words = {
  SandboxState: ["Sandbox", "state"],
  URLAccess: ["Sandbox", "url_access"],
  PortAccess: ["PublishedPort", "access"],
  ExecutionState: ["Execution", "state"],
  Role: ["Member", "role"],
  CodeScanMode: ["Workspace", "code_scan"],
  WebhookDeliveryState: ["WebhookDelivery", "state"],
  WorkerState: ["Worker", "state"],
};
/** The members of text that are empty when they are absent. */
const empty = new Set(["Sandbox.description", "Snapshot.description", "Snapshot.message", "SandboxImage.description", "Member.email", "Webhook.description"]);
/** The members of text that are undefined when they are empty. */
const blank = new Set(["User.email", "User.workspace_id", "Whoami.email"]);

/**
 * The options of calls. `of` are the schemas of their bodies, `without` the members that are no options, `types` those
 * with another type than in the body or with none there, which are not encoded; `docs` describes members otherwise
 * than the document does. `later` are members that the calls encode. Members that a caller gives and the type does not
 * have are refused, except for `open` types, which are parts of other types.
 */
const waitForQuota =
  "Wait for room in the workspace's quota, and on the server, at most this long; undefined throws `quota_exceeded` at once. More than 240 is several requests, of which each takes its place at the end of the line.";
const options = {
  CommandOptions: { open: true, doc: "A command: exactly one of `command` and `shell`.", of: ["Exec"], without: ["max_output_bytes", "encoding", "program"] },
  ExecutionOptions: {
    doc: "How an execution runs, beside its command.",
    open: true,
    of: ["ExecutionCommand"],
    without: ["command", "shell", "cwd", "env", "user", "timeout_seconds"],
    types: { files: 'readonly Omit<NewFile, "mode">[]', tty: "{ rows: number; cols: number }" },
  },
  CreateSandboxOptions: {
    doc: "What sandbox to make; the empty object is the default image with default limits.",
    of: ["CreateSandbox"],
    extends: ["CallOptions"],
    types: { command: "ExecutionCommand", idempotency_key: "string" },
    later: ["wait_seconds", "wait_for_quota_seconds"],
    docs: {
      idempotency_key: "Makes repeated creates one within 24 hours; undefined is a new key for this call.",
      wait_seconds: "Answer only when it runs or has ended, or after this many seconds (at most 240); 0 answers at once.",
      wait_for_quota_seconds: waitForQuota,
    },
  },
  ForkOptions: {
    doc: "What children to make; the empty object is one.",
    of: ["Fork"],
    extends: ["CallOptions"],
    later: ["wait_for_quota_seconds"],
    docs: { wait_for_quota_seconds: waitForQuota },
  },
  PauseOptions: { doc: "How a sandbox is paused.", of: ["PauseSandbox"], extends: ["CallOptions"] },
  ResumeOptions: {
    doc: "How a paused sandbox is brought back.",
    of: ["ResumeSandbox"],
    extends: ["CallOptions"],
    later: ["wait_for_quota_seconds"],
    docs: { wait_for_quota_seconds: waitForQuota },
  },
  CreateSnapshotOptions: { doc: "What a snapshot is called.", of: ["CreateSnapshot"], extends: ["CallOptions"] },
  BuildSnapshotOptions: {
    doc: "What a snapshot is built of, and called.",
    of: ["BeginSnapshotBuild", "FinishSnapshotBuild"],
    extends: ["CreateSnapshotOptions"],
    without: ["runtime"],
    types: { files: "FileContent" },
    later: ["apt_packages", "npm_packages", "pip_packages", "env", "wait_for_quota_seconds"],
    docs: { files: "A tar.gz with names relative to `dir`.", wait_for_quota_seconds: waitForQuota },
  },
  BuildImageOptions: {
    doc: "What image to build from a Dockerfile.",
    of: ["ImageBuild"],
    extends: ["CallOptions"],
    types: { dockerfile: "string", path: "string" },
    docs: {
      dockerfile: "The Dockerfile's text, instead of the file at `path`.",
      path: "Where the Dockerfile is among the files; default `Dockerfile`.",
    },
  },
  SandboxImageOptions: {
    doc: "What can be said of an image of the catalogue. What is undefined is as the image has it, or stays.",
    of: ["UpdateSandboxImage"],
    extends: ["CallOptions"],
    without: ["name", "image"],
  },
  PruneOptions: { doc: "Which images to prune.", of: ["PruneImages"], extends: ["CallOptions"] },
  RecordOptions: { doc: "How to record a screen.", of: ["StartRecording"], extends: ["CallOptions"] },
  PublishPortOptions: { doc: "How to publish a port.", of: ["PublishPort"], extends: ["CallOptions"] },
  PortLinkOptions: { doc: "How to make a signed link.", of: ["CreatePortLink"], extends: ["CallOptions"] },
  SSHKeyOptions: { doc: "How an SSH key works; the empty object is one that works for ever, for all that its user may.", of: ["AddSSHKey"], without: ["public_key"], extends: ["CallOptions"] },
  CreateTokenOptions: { doc: "What token to make; the empty object is one that may do all that its user may.", of: ["CreateToken"], extends: ["CallOptions"] },
  CreateUserOptions: { doc: "What user to make.", of: ["CreateUser"], extends: ["CallOptions"], without: ["name"] },
  CreateRegistryOptions: { doc: "How to sign in.", of: ["CreateRegistry"], extends: ["CallOptions"] },
  UpdateWorkerOptions: { doc: "What to change of a worker.", of: ["UpdateWorker"], extends: ["CallOptions"] },
  CreateWebhookOptions: { doc: "Which events are sent where.", of: ["CreateWebhook"], extends: ["CallOptions"] },
};

// An entry of a table that names no member would silently do nothing after a change of a name.
const entries = [
  ...[...empty, ...blank].map((entry) => entry.split(".")),
  ...Object.values(words),
  ...Object.values(options).flatMap(({ of, without = [], later = [] }) =>
    [...without, ...later].map((name) => [of.find((schema) => name in schemas[schema].properties) ?? of[0], name]),
  ),
];
for (const [schema, name] of entries) {
  if (!(name in (schemas[schema]?.properties ?? {}))) throw new Error(`a table names ${schema}.${name}, which the document does not have`);
}

const wordTypes = new Map(Object.entries(words).map(([name, [schema, property]]) => [schemas[schema].properties[property].enum.join(), name]));

const camel = (name) => name.replace(/_([a-z0-9])/g, (_, c) => c.toUpperCase());
const lower = (name) => name.replace(/^[A-Z]+(?=[A-Z][a-z])|^[A-Z]/, (begin) => begin.toLowerCase());
const bare = (s) => s.anyOf?.find((a) => a.type !== "null") ?? s;
const types = (s) => [bare(s).type].flat().filter((t) => t !== "null");
const nullable = (s) => s.anyOf?.some((a) => a.type === "null") || [s.type].flat().includes("null");
const ref = (s) => bare(s).$ref?.split("/").pop();
const isMap = (s) => types(s)[0] === "object" && typeof bare(s).additionalProperties === "object";
const isList = (s) => types(s)[0] === "array";
const doc = (text, indent) => (text ? [`${indent}/** ${text.replaceAll("*/", "*\\/")} */`] : []);

function typeName(schema) {
  const name = answers[schema] ?? given[schema];
  if (name === undefined) throw new Error(`the schema ${schema} has no type; add it to answers`);
  return name || schema;
}

/** The type of a value that is not null; what callers give they may not change. */
function kind(s, asGiven = false) {
  const b = bare(s);
  if (b.$ref) return typeName(ref(b));
  if (b.enum) return wordTypes.get(b.enum.join()) ?? b.enum.map((w) => JSON.stringify(w)).join(" | ");
  const [type, more] = types(s);
  if (more !== undefined) throw new Error(`no type for ${JSON.stringify(s)}`);
  if (type === "array") return `${asGiven ? "readonly " : ""}${/[ |]/.test(kind(b.items)) ? `(${kind(b.items)})` : kind(b.items)}[]`;
  if (isMap(s)) return `Record<string, ${kind(b.additionalProperties)}>`;
  const simple = { string: "string", integer: "number", number: "number", boolean: "boolean" }[type];
  if (simple === undefined) throw new Error(`no type for ${JSON.stringify(s)}`);
  return simple;
}

/** The type of a member of an answer. */
function memberType(schema, name, s, required) {
  if (nullable(s)) return `${kind(s)} | null`;
  const always = required || isList(s) || isMap(s) || kind(s) === "boolean" || empty.has(`${schema}.${name}`);
  return always && !blank.has(`${schema}.${name}`) ? kind(s) : `${kind(s)} | undefined`;
}

/** How a member of an answer is read. */
function decoded(schema, name, s, required) {
  const w = `w.${name}`;
  const item = isList(s) && ref(bare(s).items);
  if (item) return required ? `${w}.map(${lower(item)})` : `${w}?.map(${lower(item)}) ?? []`;
  if (ref(s)) return required && !nullable(s) ? `${lower(ref(s))}(${w})` : `${w} && ${lower(ref(s))}(${w})`;
  if (blank.has(`${schema}.${name}`)) return `${w} || undefined`;
  if (required || nullable(s)) return w;
  if (isList(s)) return `${w} ?? []`;
  if (isMap(s)) return `${w} ?? {}`;
  if (kind(s) === "boolean") return `${w} ?? false`;
  return empty.has(`${schema}.${name}`) ? `${w} ?? ""` : w;
}

function answer(schema) {
  const s = schemas[schema];
  const base = bases[schema];
  const inherited = base ? schemas[base].properties : {};
  const required = new Set(s.required);
  const members = Object.entries(s.properties).filter(([p]) => !(p in inherited));
  const name = typeName(schema);
  return [
    ...doc(s.description, ""),
    `export interface ${name}${base ? ` extends ${typeName(base)}` : ""} {`,
    ...members.flatMap(([p, m]) => [...doc(m.description, "  "), `  ${camel(p)}: ${memberType(schema, p, m, required.has(p))};`]),
    "}",
    "",
    ...(typesOnly.has(schema) ? [] : decoder(schema, name, base, members, required)),
  ];
}

function decoder(schema, name, base, members, required) {
  return [
    `export function ${lower(schema)}(w: Wire["${schema}"]): ${name} {`,
    "  return {",
    ...(base ? [`    ...${lower(base)}(w),`] : []),
    ...members.map(([p, m]) => `    ${camel(p)}: ${decoded(schema, p, m, required.has(p))},`),
    "  };",
    "}",
    "",
  ];
}

/** How a member that a caller gave is written. */
function encoded(p, s) {
  const o = `o.${camel(p)}`;
  if (isList(s)) return `${o} && [...${o}]`;
  return ref(s) && ref(s) in given ? `${o} && encode${typeName(ref(s))}(${o})` : o;
}

const optional = (p, type) => `  ${camel(p)}?: ${type} | undefined;`;

function both(schema) {
  const { description, properties } = schemas[schema];
  const name = typeName(schema);
  const members = Object.entries(properties);
  return [
    ...doc(description, ""),
    `export interface ${name} {`,
    ...members.flatMap(([p, m]) => [...doc(m.description, "  "), optional(p, kind(m, true))]),
    "}",
    "",
    ...(typesOnly.has(schema)
      ? []
      : [
          `export function ${lower(schema)}(w: Wire["${schema}"]): ${name} {`,
          "  return {",
          ...members.map(([p]) => `    ${camel(p)}: w.${p},`),
          "  };",
          "}",
          "",
        ]),
    ...memberNames(name, members.map(([p]) => p), []),
    `export function encode${name}(o: ${name}): Wire["${schema}"] {`,
    `  checkMembers("${name}", o, ${membersOf(name)});`,
    "  return {",
    ...members.map(([p, m]) => `    ${p}: ${encoded(p, m)},`),
    "  };",
    "}",
    "",
  ];
}

const membersOf = (name) => `${lower(name)}Members`;

/** The names of a type's members, for the check of what callers give. */
function memberNames(name, properties, bases) {
  const call = bases.some((base) => base === "CallOptions" || options[base]?.extends?.includes("CallOptions"));
  const names = [...properties.map(camel), ...(call ? ["signal"] : [])];
  return [`export const ${membersOf(name)}: Members<${name}> = { ${names.map((p) => `${p}: true`).join(", ")} };`, ""];
}

function bodyMembers({ of, without = [], types: others = {} }) {
  const all = Object.assign({}, ...of.map((schema) => schemas[schema].properties));
  return Object.entries(all).filter(([p]) => !without.includes(p) && !(p in others));
}

function option(name, o) {
  const inherited = new Set((o.extends ?? []).filter((e) => e in options).flatMap((e) => bodyMembers(options[e]).map(([p]) => p)));
  const required = new Set(o.of.flatMap((schema) => schemas[schema].required ?? []));
  const members = bodyMembers(o);
  const docs = o.docs ?? {};
  const written = members.filter(([p]) => !(o.later ?? []).includes(p));
  return [
    ...doc(o.doc, ""),
    `export interface ${name}${o.extends ? ` extends ${o.extends.join(", ")}` : ""} {`,
    ...members
      .filter(([p]) => !inherited.has(p))
      .flatMap(([p, m]) => [
        ...doc(docs[p] ?? m.description, "  "),
        required.has(p) ? `  ${camel(p)}: ${kind(m, true)};` : optional(p, kind(m, true)),
      ]),
    ...Object.entries(o.types ?? {}).flatMap(([p, type]) => {
      const described = docs[p] ?? o.of.map((schema) => schemas[schema].properties[p]?.description).find(Boolean);
      return [...doc(described, "  "), optional(p, type)];
    }),
    "}",
    "",
    ...memberNames(name, [...members.map(([p]) => p), ...Object.keys(o.types ?? {})], o.extends ?? []),
    `export function encode${name}(o: ${name}) {`,
    ...(o.open ? [] : [`  checkMembers("${name}", o, ${membersOf(name)});`]),
    `  return {`,
    ...written.map(([p, m]) => `    ${p}: ${encoded(p, m)},`),
    `  };`,
    "}",
    "",
  ];
}

const text = [
  "// The types of the API. Made from api/openapi.yaml by tools/schemas.mjs; run make gen.",
  "",
  'import type { ExecutionCommand } from "./executions.js";',
  'import { checkMembers, type Members } from "./known.js";',
  'import type { components } from "./openapi.js";',
  'import type { CallOptions, FileContent, NewFile } from "./types.js";',
  "",
  'type Wire = components["schemas"];',
  "",
  ...Object.entries(words).flatMap(([name, [schema, property]]) => {
    const s = schemas[schema].properties[property];
    return [...doc(s.description, ""), `export type ${name} = ${s.enum.map((w) => JSON.stringify(w)).join(" | ")};`, ""];
  }),
  ...Object.keys(given).flatMap(both),
  ...Object.keys(answers).flatMap(answer),
  ...Object.entries(options).flatMap(([name, o]) => option(name, o)),
].join("\n");

let current = "";
try {
  current = readFileSync(target, "utf8");
} catch {
  // It is made for the first time.
}
if (current !== text) {
  if (process.argv[2] === "--check") {
    console.error("src/schemas.ts differs from what tools/schemas.mjs makes of api/openapi.yaml; run make gen");
    process.exit(1);
  }
  writeFileSync(target, text);
}
