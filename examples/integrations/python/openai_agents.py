"""An agent of the OpenAI Agents SDK (openai-agents) that runs code in a sandbox."""

import json
from typing import Any, List

from agents import Agent, Runner, function_tool

from modbox import AsyncSandbox


def sandbox_tools(sbx: AsyncSandbox) -> List[Any]:
    """The tools of one sandbox."""

    @function_tool
    async def run(command: str) -> str:
        """Runs a shell command in a Linux sandbox and returns its output."""
        result = await sbx.run(command)
        return json.dumps({"exit_code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr})

    return [run]


async def answer(model: Any, prompt: str) -> str:
    """Answers a prompt with a model: the name of one of OpenAI's, or a Model."""
    async with await AsyncSandbox.create(image="modbox/code-exec") as sbx:
        agent = Agent(name="coder", instructions="You solve tasks in a Linux sandbox.", model=model, tools=sandbox_tools(sbx))
        return str((await Runner.run(agent, prompt)).final_output)
