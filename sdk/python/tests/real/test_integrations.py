"""Runs the agents of examples/integrations/python in sandboxes of the server at MODBOX_URL.

The frameworks are stand-ins with the few names that the agents use, because the tests need no packages of PyPI: they
show that the tools work in a sandbox and that their answers reach the model, and nothing about the frameworks.
"""

import importlib
import json
import sys
import unittest
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

EXAMPLES = Path(__file__).parents[4] / "examples" / "integrations" / "python"
COMMAND = "echo $((6*7)); echo no >&2; exit 3"
ANSWER = {"exit_code": 3, "stdout": "42\n", "stderr": "no\n"}


def module(name, **members):
    stand_in = ModuleType(name)
    vars(stand_in).update(members)
    return {name: stand_in}


def described(function):
    """A decorator for a tool: the framework describes the tool to the model by its name, text and types."""
    function.description = function.__doc__
    return function


async def call(tools):
    """What a model does with the tools of an agent: it calls the only one, and says what that answered."""
    (run,) = tools
    assert run.__name__ == "run" and "Linux sandbox" in run.description and run.__annotations__["command"] is str
    return f"The tool answered {await run(command=COMMAND)}"


class IntegrationsTest(unittest.IsolatedAsyncioTestCase):
    def agent(self, name, stand_ins):
        """Imports an example, with the stand-ins of its framework."""
        for module_name in (name, *stand_ins):
            self.assertNotIn(module_name, sys.modules)
            self.addCleanup(sys.modules.pop, module_name, None)
        sys.modules.update(stand_ins)
        with mock.patch.object(sys, "path", [str(EXAMPLES), *sys.path]):
            return importlib.import_module(name)

    def told(self, answer):
        self.assertTrue(answer.startswith("The tool answered "), answer)
        self.assertEqual(json.loads(answer[len("The tool answered ") :]), ANSWER)

    async def test_openai_agents(self):
        class Agent:
            def __init__(self, *, name, instructions, model, tools):
                self.model, self.tools = model, tools

        class Runner:
            @staticmethod
            async def run(agent, prompt):
                self.assertEqual((agent.model, prompt), ("scripted", "What is 6*7?"))
                return SimpleNamespace(final_output=await call(agent.tools))

        example = self.agent("openai_agents", module("agents", Agent=Agent, Runner=Runner, function_tool=described))
        self.told(await example.answer("scripted", "What is 6*7?"))

    async def test_langchain(self):
        class LangChainAgent:
            def __init__(self, model, *, tools):
                self.model, self.tools = model, tools

            async def ainvoke(self, state):
                messages = state["messages"]
                test.assertEqual((self.model, messages), ("scripted", [{"role": "user", "content": "What is 6*7?"}]))
                return {"messages": [*messages, SimpleNamespace(text=await call(self.tools))]}

        test = self
        stand_ins = {**module("langchain"), **module("langchain.agents", create_agent=LangChainAgent), **module("langchain.tools", tool=described)}
        self.told(await self.agent("langchain_agent", stand_ins).answer("scripted", "What is 6*7?"))

    async def test_claude_agent(self):
        ends = []

        class ResultMessage:
            def __init__(self, subtype, result=None):
                self.subtype, self.result = subtype, result

        def tool(name, description, parameters):
            self.assertEqual((name, parameters), ("run", {"command": str}))
            return lambda function: function

        async def query(*, prompt, options):
            self.assertEqual((prompt, options.tools, options.allowed_tools, options.model), ("What is 6*7?", [], ["mcp__sandbox__run"], "scripted"))
            yield "a message of another type"
            (run,) = options.mcp_servers["sandbox"].tools
            (content,) = (await run({"command": COMMAND}))["content"]
            self.assertEqual(content["type"], "text")
            yield ResultMessage(ends.pop(), f"The tool answered {content['text']}")

        members = {"ClaudeAgentOptions": SimpleNamespace, "ResultMessage": ResultMessage, "create_sdk_mcp_server": lambda **server: SimpleNamespace(**server)}
        example = self.agent("claude_agent", module("claude_agent_sdk", query=query, tool=tool, **members))
        ends.append("success")
        self.told(await example.answer("What is 6*7?", model="scripted"))
        ends.append("error_max_turns")
        with self.assertRaisesRegex(RuntimeError, "error_max_turns"):
            await example.answer("What is 6*7?", model="scripted")


if __name__ == "__main__":
    unittest.main()
