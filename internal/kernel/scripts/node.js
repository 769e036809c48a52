// The harness of Node.js: executes code in the global scope and keeps its state. Its control thread
// (nodecontrol.js) may end anything here at any place, the harness included.
'use strict';
const fs = require('node:fs');
const util = require('node:util');
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const { createRequire } = require('node:module');
const { Session } = require('node:inspector');
const { Writable } = require('node:stream');
const { Worker } = require('node:worker_threads');

const session = new Session();
session.connect();

const exit = new Int32Array(new SharedArrayBuffer(4));
const control = new Worker(__filename.replace(/\.js$/, '.control.js'), { workerData: { exit }, argv: [], execArgv: [], stdout: false, stderr: false });
const reply = (message) => control.postMessage({ line: JSON.stringify(message) });

// Output is written at once, without the state of a stream: an interrupt ends code anywhere, and a
// stream that is in the middle of a write would stay there.
const wait = new Int32Array(new SharedArrayBuffer(4));
const direct = (fd) => {
  const write = (data) => {
    for (let rest = data; rest.length > 0; ) {
      try {
        rest = rest.subarray(fs.writeSync(fd, rest));
      } catch (err) {
        if (err.code !== 'EAGAIN') return;
        Atomics.wait(wait, 0, 0, 1);
      }
    }
  };
  const stream = new Writable({
    write(chunk, encoding, done) {
      write(chunk);
      done();
    },
  });
  stream.fd = fd;
  stream.write = (chunk, encoding, done) => {
    write(typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : Buffer.from(chunk));
    const callback = typeof encoding === 'function' ? encoding : done;
    if (callback) process.nextTick(callback);
    return true;
  };
  return stream;
};
const { Console } = console;
for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
  Object.defineProperty(process, name, { value: direct(fd), configurable: true, enumerable: true, writable: true });
}
globalThis.console = new Console(process.stdout, process.stderr);
console.Console = Console;

// Code is evaluated as in a directory, as in "node -e".
const userRequire = createRequire(path.join(process.cwd(), '[code].js'));
globalThis.require = userRequire;
const importName = '__modbox_import';
Object.defineProperty(globalThis, importName, {
  value: (name) => {
    if (/^\.{0,2}\//.test(name)) return import(pathToFileURL(path.resolve(name)).href);
    try {
      const found = userRequire.resolve(name);
      if (path.isAbsolute(found)) return import(pathToFileURL(found).href);
    } catch {}
    return import(name);
  },
});

const bundle = (value) => {
  const custom = value?.[Symbol.for('Jupyter.display')];
  if (typeof custom === 'function') {
    const data = custom.call(value);
    if (data && typeof data === 'object') return data;
  }
  const data = { 'text/plain': util.inspect(value, { maxArrayLength: 1000, maxStringLength: 100000 }) };
  if (value && typeof value === 'object') {
    const prototype = Object.getPrototypeOf(value);
    if (Array.isArray(value) || prototype === Object.prototype || prototype === null) {
      try {
        const json = JSON.stringify(value);
        if (json !== undefined && json.length <= 1 << 20) data['application/json'] = JSON.parse(json);
      } catch {}
    }
  }
  return data;
};

// display shows a value, or a bundle of formats with display({'text/html': '…'}, {raw: true}).
globalThis.display = (value, options) => {
  reply({ type: 'result', data: options?.raw ? value : bundle(value) });
};

// Static imports are not allowed in scripts, and import() needs a module to belong to.
const imports = (code) =>
  code
    .replace(/^([ \t]*)import\s+(?:([\w$]+)\s*(?:,\s*)?)?(?:\*\s*as\s+([\w$]+)\s*|\{([^}]*)\}\s*)?from\s*(['"][^'"\n]+['"])[ \t]*;?/gm, (all, space, main, names, list, from) => {
      const load = `await ${importName}(${from})`;
      if (names) return `${space}const ${names} = ${load};${main ? ` const ${main} = ${names}.default;` : ''}`;
      const parts = [];
      if (main) parts.push(`default: ${main}`);
      for (const item of (list ?? '').split(',')) {
        const name = item.trim();
        if (name && !name.startsWith('type ')) parts.push(name.replace(/\s+as\s+/, ': '));
      }
      return `${space}const { ${parts.join(', ')} } = ${load};`;
    })
    .replace(/^([ \t]*)import\s*(['"][^'"\n]+['"])[ \t]*;?/gm, `$1await ${importName}($2);`)
    .replace(/(^|[^.\w$])import\s*\(/gm, `$1${importName}(`);

const typescript = process.argv[2] === 'typescript';
const strip = (() => {
  if (!typescript) return (code) => code;
  const tryRequire = (name) => {
    for (const from of [userRequire, require, createRequire(path.join(path.dirname(process.execPath), '../lib/node_modules/x.js')), createRequire('/usr/share/nodejs/x.js'), createRequire('/usr/local/lib/node_modules/x.js')]) {
      try {
        return from(name);
      } catch {}
    }
    return undefined;
  };
  const esbuild = tryRequire('esbuild');
  if (esbuild) return (code) => esbuild.transformSync(code, { loader: 'ts', target: 'esnext', tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } } }).code;
  const ts = tryRequire('typescript');
  if (ts) return (code) => ts.transpileModule(code, { compilerOptions: { target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext, verbatimModuleSyntax: true } }).outputText;
  const { stripTypeScriptTypes } = require('node:module');
  if (stripTypeScriptTypes) return (code) => stripTypeScriptTypes(code, { mode: 'strip' });
  return undefined;
})();
if (!strip) {
  console.error('TypeScript needs esbuild or typescript (npm install -g esbuild), or Node.js 22.13 or newer');
  process.exit(3);
}

// The supervisor's signal is for programs that the code has started.
process.on('SIGINT', () => {});
const report = (err) => console.error(err);
process.on('uncaughtException', report);
process.on('unhandledRejection', report);

const fail = (err) => {
  const isError = util.types.isNativeError(err);
  let lines = (isError && err.stack ? err.stack : util.inspect(err)).split('\n');
  const ours = lines.findIndex((line) => line.includes('Session.post (node:inspector'));
  if (ours >= 0) lines = lines.slice(0, ours);
  reply({ type: 'error', name: isError ? String(err.name) : 'Error', value: isError ? String(err.message) : String(lines[0]), traceback: lines });
};

let current; // the execution that has not ended
const valueKey = Symbol.for('modbox.value');
const execute = (run, code) => {
  const execution = { run };
  const end = (failed) => {
    if (current !== execution) return;
    current = undefined;
    control.postMessage({ done: run, failed });
  };
  current = execution;
  let expression;
  try {
    expression = imports(strip(code));
  } catch (err) {
    fail(err);
    return end(true);
  }
  const finish = (err, answer) => {
    if (current !== execution) return;
    const failed = err || answer.exceptionDetails;
    // The value is passed by reference, to code of ours that runs like the user's.
    const show = (value) => {
      if (current !== execution) return;
      try {
        if (failed) fail(value);
        else if (value !== undefined) reply({ type: 'result', main: true, data: bundle(value) });
        end(Boolean(failed));
      } catch (thrown) {
        fail(thrown);
        end(true);
      }
    };
    if (err) return /terminated/.test(err.message) ? undefined : show(err); // the control thread reports the former
    const value = failed ? failed.exception ?? {} : answer.result;
    const { objectId, unserializableValue } = value;
    const argument = objectId ? { objectId } : unserializableValue ? { unserializableValue } : 'value' in value ? { value: value.value } : {};
    globalThis[valueKey] = show;
    session.post('Runtime.callFunctionOn', {
      executionContextId: contextId, arguments: [argument], silent: true,
      functionDeclaration: `function (value) { const f = globalThis[Symbol.for('modbox.value')]; delete globalThis[Symbol.for('modbox.value')]; f(value); }`,
    });
    if (objectId) session.post('Runtime.releaseObject', { objectId });
  };
  session.post('Runtime.evaluate', { expression, replMode: true, silent: true }, finish);
};

let contextId;
session.on('Runtime.executionContextCreated', ({ params }) => {
  contextId ??= params.context.id;
});
session.post('Runtime.enable');

// At its end Node.js would not wait for what was sent to the control thread.
process.on('exit', () => {
  control.postMessage({ exit: true });
  Atomics.wait(exit, 0, 0, 1000);
});

control.on('message', ({ ready, run, code, abandon, settle }) => {
  if (ready) reply({ ready: true });
  if (run) execute(run, code);
  if (abandon) {
    if (current?.run === abandon) current = undefined;
    control.postMessage({ abandoned: abandon });
  }
  if (settle) control.postMessage({ settled: true });
});
control.on('error', (err) => {
  console.error(err);
  process.exit(1);
});
process.argv.splice(1);
