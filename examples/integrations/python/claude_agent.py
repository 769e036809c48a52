"""An agent of the Claude Agent SDK (claude-agent-sdk) that runs code in a sandbox, and nothing on this machine."""

import json
from typing import Any, Dict

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool

from modbox import AsyncSandbox


def sandbox_server(sbx: AsyncSandbox) -> Any:
    """The tools of one sandbox, as an MCP server in this process."""

    @tool("run", "Runs a shell command in a Linux sandbox and returns its output.", {"command": str})
    async def run(arguments: Dict[str, Any]) -> Dict[str, Any]:
        result = await sbx.run(arguments["command"])
        text = json.dumps({"exit_code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr})
        return {"content": [{"type": "text", "text": text}]}

    return create_sdk_mcp_server(name="sandbox", version="1.0.0", tools=[run])


async def answer(prompt: str, **options: Any) -> str:
    """Answers a prompt. ``options`` are further options of the SDK, such as the model."""
    async with await AsyncSandbox.create(image="modbox/code-exec") as sbx:
        agent = ClaudeAgentOptions(
            mcp_servers={"sandbox": sandbox_server(sbx)},
            tools=[],  # none of the tools that work on this machine
            allowed_tools=["mcp__sandbox__run"],
            setting_sources=[],
            **options,
        )
        async for message in query(prompt=prompt, options=agent):
            if isinstance(message, ResultMessage):
                if message.subtype != "success":
                    raise RuntimeError(f"the agent ended with {message.subtype}")
                return str(message.result)
        raise RuntimeError("the agent ended without a result")
