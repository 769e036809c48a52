"""An agent of LangChain (langchain) that runs code in a sandbox."""

import json
from typing import Any, List

from langchain.agents import create_agent
from langchain.tools import tool

from modbox import AsyncSandbox


def sandbox_tools(sbx: AsyncSandbox) -> List[Any]:
    """The tools of one sandbox."""

    @tool
    async def run(command: str) -> str:
        """Runs a shell command in a Linux sandbox and returns its output."""
        result = await sbx.run(command)
        return json.dumps({"exit_code": result.exit_code, "stdout": result.stdout, "stderr": result.stderr})

    return [run]


async def answer(model: Any, prompt: str) -> str:
    """Answers a prompt with any chat model of LangChain, such as ChatOpenAI() of langchain-openai."""
    async with await AsyncSandbox.create(image="modbox/code-exec") as sbx:
        agent = create_agent(model, tools=sandbox_tools(sbx))
        state = await agent.ainvoke({"messages": [{"role": "user", "content": prompt}]})
        return str(state["messages"][-1].text)
