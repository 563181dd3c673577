"""An executor with tools in hand: it looks things up, compiles and checks, and then answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from .answers import read_code
from .calls import CallKey, NoAnswer
from .context import Role, RunContext
from .events import emit
from .services import Services

LONGEST_RESULT = 6000
"""Characters of a tool's result that go back to the model."""

NO_KERNEL = (
    "That holds no new kernel. Call a tool, or answer with the complete kernel in one Python code block."
)

LAST_WORD = "You have used all your tool calls. Answer now with the complete kernel in one Python code block."


async def work_with_tools(
    shared: Services,
    context: RunContext,
    key: CallKey,
    prompt: Sequence[BaseMessage],
    parent: str,
    draw: int,
) -> str:
    """Let the model call tools until it answers with a kernel; without tool calling it answers at once.

    Raises:
        NoAnswer: it never answered with a new kernel.
        CapReached: a call may not be made.
    """
    tools = {tool.name: tool for tool in shared.tools()}
    formats = [convert_to_openai_tool(tool) for tool in tools.values()]
    messages: list[BaseMessage] = list(prompt)
    left = context.tool_calls
    # A model may talk without calling a tool; each turn costs, so turns are limited like calls.
    for turn in range(context.tool_calls + 1):
        offered = formats if left > 0 and turn < context.tool_calls else []
        if not offered:
            messages.append(HumanMessage(LAST_WORD))
        try:
            answer = await shared.caller.turn(key.model_copy(update={"turn": turn}), messages, offered, draw)
        except NoAnswer:
            if turn == 0 and not shared.caller.knows_tools(Role.EXECUTOR, draw):
                emit("notice", message="the executor's endpoint knows no tool calls: asking for one answer")
                return await shared.caller.code(key, prompt, parent, draw)
            raise
        if not answer.tool_calls:
            code = read_code(answer, parent)
            if code.source is not None:
                return code.source
            messages += [answer, HumanMessage(NO_KERNEL)]
            continue
        messages.append(answer)
        for call in answer.tool_calls:
            result = await _used(tools, call) if left > 0 else "no tool calls are left"
            left -= 1
            messages.append(ToolMessage(result, tool_call_id=call["id"] or ""))
    raise NoAnswer("the executor used all its turns without answering with a new kernel")


async def _used(tools: dict[str, BaseTool], call: Any) -> str:
    """A tool's result as text; whatever goes wrong in it is a result too."""
    tool = tools.get(call["name"])
    if tool is None:
        return f"there is no tool {call['name']}; there are {', '.join(tools)}"
    try:
        result = await tool.ainvoke(call["args"])
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    text = result if isinstance(result, str) else json.dumps(result, default=str)
    return text if len(text) <= LONGEST_RESULT else text[:LONGEST_RESULT] + " ..."
