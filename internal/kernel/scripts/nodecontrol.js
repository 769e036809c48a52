// The control thread of the harness: requests of the supervisor and answers to it pass through this
// thread, which ends code of the main thread whatever that does. It has no code of the user.
'use strict';
const fs = require('node:fs');
const { parentPort, workerData } = require('node:worker_threads');
const { Session } = require('node:inspector');
const { Socket } = require('node:net');

const main = new Session();
main.connectToMainThread();

const reply = (line) => {
  for (let data = Buffer.from(line + '\n'); data.length > 0; ) data = data.subarray(fs.writeSync(4, data));
};

let count = 0; // executions so far
let running = false; // the last execution has not ended
let terminating = false; // a termination was requested and has not happened
let settling; // the timer of a request to settle that has no answer yet

const end = (failed) => {
  running = false;
  reply(JSON.stringify({ done: true, failed, count }));
};

// A termination ends JavaScript that the main thread executes, or else executes next; this may also
// be the harness's own. Therefore the main thread is asked afterwards whether the execution goes on.
const terminate = () => {
  if (terminating) return;
  terminating = true;
  // What the main thread executes next, if it executes nothing now. It may get a message too early.
  const poke = setInterval(() => parentPort.postMessage({}), 5);
  main.post('Runtime.terminateExecution', () => {
    terminating = false;
    clearInterval(poke);
    if (running) parentPort.postMessage({ abandon: count });
    if (settling) parentPort.postMessage({ settle: true });
  });
};

parentPort.on('message', (message) => {
  if (message.line !== undefined) reply(message.line);
  if (message.done === count && running) end(message.failed);
  if (message.abandoned === count && running) {
    reply(JSON.stringify({ type: 'error', name: 'Interrupted', value: 'the execution was interrupted', traceback: [] }));
    end(true);
  }
  if (message.settled && settling && !terminating) {
    clearInterval(settling);
    settling = undefined;
    reply('{"settled":true}');
  }
  if (message.exit) {
    main.disconnect(); // else Node.js waits for it, and says so
    Atomics.store(workerData.exit, 0, 1);
    Atomics.notify(workerData.exit, 0);
  }
});

const handle = ({ code, interrupt: interrupted, settle }) => {
  if (code !== undefined) {
    count++;
    running = true;
    parentPort.postMessage({ run: count, code });
  }
  if (interrupted && running) {
    // The supervisor's signal has ended programs that the code waits for. Node.js crashes if a termination
    // arrives while it makes their result.
    const run = count;
    setTimeout(() => {
      if (running && run === count) terminate();
    }, 50);
  }
  if (settle) {
    settling = setInterval(terminate, 250); // the rest of the code may begin to execute only now
    if (!terminating) parentPort.postMessage({ settle: true });
  }
};

let rest = '';
const requests = new Socket({ fd: 3 }).setEncoding('utf8'); // a read of a file would keep this thread from ending
requests.on('data', (data) => {
  const lines = (rest + data).split('\n');
  rest = lines.pop();
  for (const line of lines) handle(JSON.parse(line));
});
requests.on('end', () => process.kill(process.pid, 'SIGKILL'));
parentPort.postMessage({ ready: true });
