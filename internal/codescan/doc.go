// Package codescan scans code before it runs: it finds the constructs that deserve a look. The code
// is hostile, and so no parser reads it on the host: a process in the sandbox that would run the code
// does, and its answer is not trusted. The parsers are the interpreter's own for Python, the parser
// that is part of Node.js for JavaScript and TypeScript, and for shell code the parser in the agent's
// program (package shellscan), which the sandbox cannot replace.
//
// [Policies] say for each workspace whether code is scanned before it runs, and whether code with
// findings runs. [Service] enforces that. It is called where commands and code start, below all
// APIs, so that no route and no field of a request avoids it:
//
//   - guest.Calls.Exec, for commands,
//   - execution.Service, for commands that outlive their request,
//   - code.Service.Start, for code in contexts.
//
// The scan covers code in the request: the arguments of an interpreter, shell scripts, the input of an
// interpreter that reads its program from it, and files that an execution brings along. It does not cover files in the
// sandbox, and so a policy is no boundary. The sandbox is.
package codescan
