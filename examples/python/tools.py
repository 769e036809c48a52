"""An agent without a framework: a model calls tools, and the tools run in a sandbox.

The model is any server of chat completions with tools: MODEL_URL is the address of its API, such as
http://127.0.0.1:11434/v1, MODEL_NAME the model, MODEL_API_KEY the key, if it needs one.
"""

import json
import os
import sys
from typing import Any, Dict, List
from urllib.request import Request, urlopen

from modbox import ModboxError, Sandbox

Message = Dict[str, Any]


def tool(name: str, description: str, **parameters: str) -> Message:
    """Describes a tool whose parameters are all text."""
    properties = {parameter: {"type": "string", "description": text} for parameter, text in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = [
    tool("run_command", "Runs a command in a shell of a Linux machine.", command="The command line."),
    tool("write_file", "Writes a text file.", path="Absolute path.", content="The whole content."),
    tool("read_file", "Reads a text file.", path="Absolute path."),
]


def call(sbx: Sandbox, name: str, arguments: Dict[str, str]) -> str:
    """Runs a tool. An error is an answer as well: the model can try something else."""
    try:
        if name == "run_command":
            result = sbx.run(arguments["command"], timeout_seconds=300, max_output_bytes=20_000)
            return f"exit code {result.exit_code}\n{result.stdout}{result.stderr}"
        if name == "write_file":
            return f"wrote {sbx.files.write(arguments['path'], arguments['content']).path}"
        if name == "read_file":
            return sbx.files.read(arguments["path"])[:20_000]
        return f"there is no tool {name}"
    except (ModboxError, KeyError, UnicodeDecodeError) as err:
        return f"error: {err}"


def ask(messages: List[Message]) -> Message:
    """Sends the conversation to the model and returns its message."""
    body = {"model": os.environ["MODEL_NAME"], "messages": messages, "tools": TOOLS}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('MODEL_API_KEY', '')}"}
    request = Request(f"{os.environ['MODEL_URL']}/chat/completions", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=600) as answer:
        message: Message = json.load(answer)["choices"][0]["message"]
    return message


def work(task: str, max_turns: int = 20) -> str:
    """Works on a task in a new sandbox until the model calls no more tools, and returns its last words."""
    messages: List[Message] = [{"role": "user", "content": task}]
    with Sandbox.create(image="modbox/code-exec", ttl_seconds=3600) as sbx:
        for _ in range(max_turns):
            message = ask(messages)
            messages.append(message)
            if not message.get("tool_calls"):
                return str(message["content"])
            for wanted in message["tool_calls"]:
                function = wanted["function"]
                answer = call(sbx, function["name"], json.loads(function["arguments"]))
                print(f"{function['name']}: {answer.splitlines()[0] if answer else ''}", flush=True)
                messages.append({"role": "tool", "tool_call_id": wanted["id"], "content": answer})
    return f"no end after {max_turns} turns"


if __name__ == "__main__":
    print(work(sys.argv[1]))
