// Finds constructs in JavaScript and TypeScript code that deserve a look, with the parser that is part of
// Node.js. Reads {"code", "language", "allowed"} and writes {"findings"}, as JSON.
'use strict';
const { parse } = require('internal/deps/acorn/acorn/dist/acorn');
const { readFileSync } = require('fs');

const { code, language, allowed } = JSON.parse(readFileSync(0, 'utf8'));
const findings = [];
const modules = {
  child_process: 'process', cluster: 'process', worker_threads: 'process',
  net: 'network', http: 'network', https: 'network', http2: 'network', dgram: 'network', tls: 'network', dns: 'network', inspector: 'network',
  'dns/promises': 'network', undici: 'network', axios: 'network', 'node-fetch': 'network', ws: 'network', got: 'network',
  vm: 'eval', repl: 'eval',
};
const globals = { fetch: 'network', WebSocket: 'network', XMLHttpRequest: 'network', EventSource: 'network', eval: 'eval', Function: 'eval' };
const deletes = new Set(['unlink', 'unlinkSync', 'rm', 'rmSync', 'rmdir', 'rmdirSync', 'truncate', 'truncateSync']);

let map; // of compiled TypeScript to its source
const add = (node, rule, reason) => {
  const { line, column } = node.loc.start;
  const entry = map?.findEntry(line - 1, column);
  if (entry?.originalLine === undefined) findings.push({ line, column: column + 1, rule, reason });
  else findings.push({ line: entry.originalLine + 1, column: entry.originalColumn + 1, rule, reason });
};
const text = (node) => {
  if (node?.type === 'Literal' && typeof node.value === 'string') return node.value;
  if (node?.type === 'TemplateLiteral' && node.expressions.length === 0) return node.quasis[0].value.cooked;
  return undefined;
};
const imported = (node, source) => {
  const name = text(source);
  if (name === undefined) return add(node, 'eval', 'imports a module whose name is not constant');
  const bare = name.replace(/^node:/, '');
  const top = bare.startsWith('@') ? bare.split('/').slice(0, 2).join('/') : bare.split('/')[0];
  if (allowed !== null && !/^[./]/.test(bare) && !allowed.includes(top) && !allowed.includes(bare)) add(node, 'import', `imports ${name}, which is not allowed`);
  if (modules[bare]) add(node, modules[bare], `imports ${name}`);
  if (bare.endsWith('.node')) add(node, 'native', `loads ${name}`);
};
const property = (node) => (node.computed ? text(node.property) : node.property.name);

const visit = (node) => {
  switch (node.type) {
    case 'ImportDeclaration':
    case 'ImportExpression':
      imported(node, node.source);
      break;
    case 'ExportNamedDeclaration':
    case 'ExportAllDeclaration':
      if (node.source) imported(node, node.source);
      break;
    case 'CallExpression':
    case 'NewExpression': {
      const { callee } = node;
      if (callee.type === 'Identifier' && callee.name === 'require') imported(node, node.arguments[0]);
      else if (callee.type === 'Identifier' && Object.hasOwn(globals, callee.name)) add(node, globals[callee.name], `calls ${callee.name}`);
      else if (callee.type === 'Identifier' && deletes.has(callee.name)) add(node, 'file_delete', `calls ${callee.name}`);
      else if (callee.type === 'MemberExpression' && deletes.has(property(callee))) add(node, 'file_delete', `calls a method ${property(callee)}`);
      break;
    }
    case 'MemberExpression':
      if (node.object.type === 'Identifier' && node.object.name === 'process') {
        const name = property(node);
        if (name === 'env') add(node, 'environment', 'uses process.env');
        if (name === 'dlopen' || name === 'binding') add(node, 'native', `uses process.${name}`);
        if (name === 'kill') add(node, 'process', 'uses process.kill');
      }
      break;
  }
};

// Without recursion, so that deep code does not end the scan.
const walk = (root) => {
  for (const nodes = [root]; nodes.length > 0; ) {
    const node = nodes.pop();
    visit(node);
    for (const key of Object.keys(node)) {
      for (const child of [node[key]].flat()) if (child && typeof child.type === 'string') nodes.push(child);
    }
  }
};

const options = { ecmaVersion: 'latest', locations: true, allowHashBang: true, allowReturnOutsideFunction: true, allowAwaitOutsideFunction: true };
// Types become spaces, so that positions stay. Constructs that are more than types, such as enum, are
// compiled, with a map of the positions.
const withoutTypes = () => {
  const { stripTypeScriptTypes: strip, SourceMap } = require('module');
  if (!strip) throw new SyntaxError(`Node.js ${process.version} cannot parse TypeScript; 22.13 or newer can`);
  try {
    return strip(code, { mode: 'strip' });
  } catch (err) {
    if (err.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw err;
    const compiled = strip(code, { mode: 'transform', sourceMap: true });
    const [, json] = /\n\/\/# sourceMappingURL=data:application\/json;base64,([A-Za-z0-9+/=]+)\s*$/.exec(compiled) ?? [];
    if (json) map = new SourceMap(JSON.parse(Buffer.from(json, 'base64').toString()));
    return compiled;
  }
};
try {
  let tree;
  const source = language === 'typescript' ? withoutTypes() : code;
  try {
    tree = parse(source, { ...options, sourceType: 'script' });
  } catch {
    tree = parse(source, { ...options, sourceType: 'module' });
  }
  walk(tree);
} catch (err) {
  findings.push({ line: err.loc?.line ?? 1, column: (err.loc?.column ?? 0) + 1, rule: 'syntax', reason: String(err.message) });
}
findings.sort((a, b) => a.line - b.line || a.column - b.column);
process.stdout.write(JSON.stringify({ findings: findings.slice(0, 201) }));
