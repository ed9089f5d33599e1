# SPDX-License-Identifier: Apache-2.0
"""Renders chats in the DeepSeek-V4 prompt format.

Only the part of the format that the corpus needs: system / user / assistant /
tool messages, chat and thinking mode, DSML tool calls, tool results and the
response-format section.  `render` returns the text in pieces so that the
trainer knows which pieces the assistant wrote.
"""

import json

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
PAD = "<｜▁pad▁｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
THINK_END = "</think>"
DSML = "｜DSML｜"

# Ids 0..2, and the last ids of the vocabulary in this order.
FIRST_SPECIALS = [BOS, EOS, PAD]
LAST_SPECIALS = [
    USER,
    ASSISTANT,
    THINK,
    THINK_END,
    DSML,
    "<｜latest_reminder｜>",
    "<｜action｜>",
    "<｜query｜>",
    "<｜authority｜>",
    "<｜domain｜>",
    "<｜title｜>",
    "<｜extracted_url｜>",
    "<｜read_url｜>",
]

TOOLS_HEAD = f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{DSML}tool_calls>" block like the following:

<{DSML}tool_calls>
<{DSML}invoke name="$TOOL_NAME">
<{DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML}parameter>
...
</{DSML}invoke>
<{DSML}invoke name="$TOOL_NAME2">
...
</{DSML}invoke>
</{DSML}tool_calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {THINK}), you MUST output your complete reasoning inside {THINK}...{THINK_END} BEFORE any tool calls or final response.

Otherwise, output directly after {THINK_END} with tool calls or final response.

### Available Tool Schemas

"""
TOOLS_TAIL = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
FORMAT_HEAD = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"


def to_json(value):
    return json.dumps(value, ensure_ascii=False)


def dsml_calls(calls):
    """calls: list of (tool name, dict of arguments) -> the DSML block with its leading blank line."""
    blocks = []
    for name, arguments in calls:
        lines = [f'<{DSML}invoke name="{name}">']
        for key, value in arguments.items():
            is_text = isinstance(value, str)
            lines.append(
                f'<{DSML}parameter name="{key}" string="{"true" if is_text else "false"}">'
                f"{value if is_text else to_json(value)}</{DSML}parameter>"
            )
        lines.append(f"</{DSML}invoke>")
        blocks.append("\n".join(lines))
    body = "\n".join(blocks)
    return f"\n\n<{DSML}tool_calls>\n{body}\n</{DSML}tool_calls>"


def call_arguments(call):
    """An OpenAI style tool call -> (name, dict of arguments)."""
    function = call["function"]
    return function["name"], json.loads(function["arguments"])


def assistant_text(message, thinking):
    """What the assistant writes for this message, after <think> or </think>, including EOS."""
    text = message.get("content") or ""
    if message.get("tool_calls"):
        text += dsml_calls([call_arguments(c) for c in message["tool_calls"]])
    if thinking:
        text = (message.get("reasoning_content") or "") + THINK_END + text
    return text + EOS


def render(messages, thinking=False):
    """-> list of (text, written_by_assistant).  Ends with the opened assistant turn when the
    last message is not an assistant message."""
    has_tools = any(m.get("tools") for m in messages)
    last_user = max(i for i, m in enumerate(messages) if m["role"] in ("user", "tool"))
    pieces, pending = [], BOS
    for i, message in enumerate(messages):
        role = message["role"]
        if role == "system":
            pending += message.get("content") or ""
            if message.get("tools"):
                schemas = "\n".join(to_json(t["function"]) for t in message["tools"])
                pending += "\n\n" + TOOLS_HEAD + schemas + TOOLS_TAIL
            if message.get("response_format"):
                pending += "\n\n" + FORMAT_HEAD + to_json(message["response_format"])
        elif role in ("user", "tool"):
            merged = i > 0 and messages[i - 1]["role"] in ("user", "tool")
            pending += "\n\n" if merged else USER
            pending += (
                f"<tool_result>{message['content']}</tool_result>"
                if role == "tool"
                else message["content"]
            )
            following = messages[i + 1]["role"] if i + 1 < len(messages) else "assistant"
            if following == "assistant":
                opened = thinking and (has_tools or i >= last_user)
                pending += ASSISTANT + (THINK if opened else THINK_END)
        elif role == "assistant":
            pieces.append((pending, False))
            opened = thinking and (has_tools or i > last_user)
            pieces.append((assistant_text(message, opened), True))
            pending = ""
        else:
            raise ValueError(role)
    if pending:
        pieces.append((pending, False))
    return pieces


def prompt_text(messages, thinking=False):
    return "".join(text for text, _ in render(messages, thinking))


def parse_tool_calls(text):
    """The DSML block in an assistant text -> list of (name, arguments); raises ValueError when malformed."""
    import re

    start = text.find(f"<{DSML}tool_calls>\n")
    end = text.find(f"\n</{DSML}tool_calls>")
    if start < 0 or end < 0:
        raise ValueError("no tool call block")
    body = text[start + len(f"<{DSML}tool_calls>\n") : end]
    if text[end + len(f"\n</{DSML}tool_calls>") :] not in ("", EOS):
        raise ValueError("text after the tool calls")
    calls, rest = [], body
    invoke = re.compile(rf'<{DSML}invoke name="([^"\n]+)">\n(.*?)\n?</{DSML}invoke>\n?', re.S)
    parameter = re.compile(
        rf'<{DSML}parameter name="([^"\n]+)" string="(true|false)">(.*?)</{DSML}parameter>\n?', re.S
    )
    while rest:
        m = invoke.match(rest)
        if not m:
            raise ValueError("malformed invoke")
        arguments, inner = {}, m.group(2)
        while inner:
            p = parameter.match(inner)
            if not p:
                raise ValueError("malformed parameter")
            arguments[p.group(1)] = p.group(3) if p.group(2) == "true" else json.loads(p.group(3))
            inner = inner[p.end() :]
        calls.append((m.group(1), arguments))
        rest = rest[m.end() :]
    return calls
