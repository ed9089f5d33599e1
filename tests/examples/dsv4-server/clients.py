# SPDX-License-Identifier: Apache-2.0
"""Other people's clients, unchanged, against a running dsv4-server. usage: clients.py URL [NAME...]

Each client that is installed does what its users do: chats, streams, loops of tools, typed answers.
Prints a line for each with its version and "ok", "FAILED" or "skipped". The exit code is 1 if one
failed. clients.sh installs them in a virtual environment and starts the server.
"""
import asyncio
import importlib.metadata
import json
import os
import sys
import traceback
from typing import Literal

MODEL = "dsv4-tiny"
QUESTION = "What is the capital of France?"
os.environ.setdefault("OPENAI_API_KEY", "unused")
os.environ.setdefault("ANTHROPIC_API_KEY", "unused")
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]}


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def openai_client(url):
    import openai
    from pydantic import BaseModel

    class Capital(BaseModel, extra="forbid"):
        country: Literal["France", "Italy"]
        kinds: set[Literal["a", "b"]]

    client = openai.OpenAI(base_url=url + "/v1")
    messages = [{"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, temperature=0)
    expect("Paris" in answer.choices[0].message.content, answer)
    parsed = client.chat.completions.parse(model=MODEL, messages=messages, response_format=Capital, max_tokens=60)
    expect(parsed.choices[0].message.parsed.country in ("France", "Italy"), parsed)
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
    call = client.chat.completions.create(
        model=MODEL, messages=messages, tools=tools, tool_choice="required", max_tokens=100, temperature=0)
    expect(call.choices[0].message.tool_calls[0].function.name == "get_weather", call)
    first = client.responses.create(model=MODEL, input=QUESTION, temperature=0)
    expect("Paris" in first.output_text, first)
    second = client.responses.create(
        model=MODEL, input="What is the capital of Italy?", previous_response_id=first.id, temperature=0)
    expect("Rome" in second.output_text, second)
    expect(client.responses.retrieve(first.id).output_text == first.output_text, "retrieve")
    expect(len(client.responses.input_items.list(first.id).data) == 1, "input_items")
    client.responses.delete(first.id)
    with client.responses.stream(model=MODEL, input=QUESTION, temperature=0) as stream:
        expect("Paris" in stream.get_final_response().output_text, "stream")
    expect(client.models.retrieve(MODEL).id == MODEL, "models.retrieve")


def anthropic_client(url):
    import anthropic

    client = anthropic.Anthropic(base_url=url)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    message = client.messages.create(
        model=MODEL, max_tokens=60, extra_body={"temperature": 0},
        messages=[{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "The capital"}])
    expect("Paris" in message.content[0].text, message)
    client.messages.create(model=MODEL, max_tokens=8, messages=[{"role": "user", "content": [image]}])
    tools = [{"name": "get_weather", "input_schema": WEATHER}, {"type": "web_search_20250305", "name": "web_search"}]
    with client.beta.messages.stream(
            model=MODEL, max_tokens=100, tools=tools, tool_choice={"type": "any"}, extra_body={"temperature": 0},
            betas=["context-management-2025-06-27"],
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            messages=[{"role": "user", "content": QUESTION}]) as stream:
        final = stream.get_final_message()
    expect(final.stop_reason == "tool_use", final)
    count = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": QUESTION}])
    expect(count.input_tokens > 5, count)


def litellm_client(url):
    import litellm

    message = [{"role": "user", "content": QUESTION}]
    answer = litellm.completion(
        model="openai/" + MODEL, api_base=url + "/v1", messages=message, temperature=0, reasoning_effort="none")
    expect("Paris" in answer.choices[0].message.content, answer)
    answer = litellm.completion(model="anthropic/" + MODEL, api_base=url, messages=message, temperature=0, max_tokens=60)
    expect("Paris" in answer.choices[0].message.content, answer)


def instructor_client(url):
    import instructor
    import openai
    from pydantic import BaseModel

    class Price(BaseModel, extra="forbid"):  # other members may follow without end
        amount: Literal[1, 2, 3]
        currency: Literal["EUR", "NOK"]

    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai.OpenAI(base_url=url + "/v1"), mode=mode)
        price = client.chat.completions.create(
            model=MODEL, response_model=Price, messages=[{"role": "user", "content": "Bread costs 3 EUR."}],
            max_tokens=200, max_retries=0, temperature=0, parallel_tool_calls=False)
        expect(price.currency in ("EUR", "NOK"), price)


def pydantic_ai_client(url):
    from pydantic import BaseModel
    from pydantic_ai import Agent, NativeOutput, ToolOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Capital(BaseModel, extra="forbid"):
        name: Literal["Paris", "Rome"]

    provider = OpenAIProvider(base_url=url + "/v1", api_key="unused")
    for model in (OpenAIChatModel(MODEL, provider=provider), OpenAIResponsesModel(MODEL, provider=provider)):
        settings = {"temperature": 0, "max_tokens": 200}
        expect("Paris" in Agent(model, model_settings=settings).run_sync(QUESTION).output, "text")
        for output in (ToolOutput(Capital), NativeOutput(Capital)):
            result = Agent(model, output_type=output, model_settings=settings).run_sync(QUESTION)
            expect(result.output.name in ("Paris", "Rome"), result)


def openai_agents_client(url):
    import openai
    from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool,
                        set_tracing_disabled)
    from pydantic import BaseModel

    class Capital(BaseModel, extra="forbid"):
        name: Literal["Paris", "Rome"]

    set_tracing_disabled(True)

    @function_tool
    def get_weather(city: Literal["Paris", "Rome"]) -> str:
        """Weather of a city."""
        return "sunny"

    async def run():
        client = openai.AsyncOpenAI(base_url=url + "/v1")
        for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
            model = kind(model=MODEL, openai_client=client)
            settings = ModelSettings(temperature=0, max_tokens=200)
            # Tools and a type of the answer, in one request.
            agent = Agent(name="a", model=model, tools=[get_weather], output_type=Capital, model_settings=settings)
            try:
                result = await Runner.run(agent, QUESTION, max_turns=4)
                expect(result.final_output.name in ("Paris", "Rome"), result)
            except Exception as error:  # the small model may call for ever; the server has answered
                if "Max turns" not in str(error):
                    raise

    asyncio.run(run())


def langgraph_client(url):
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent
    from pydantic import BaseModel

    class Capital(BaseModel, extra="forbid"):
        name: Literal["Paris", "Rome"]

    def get_weather(city: str) -> str:
        """Weather of a city."""
        return "sunny"

    model = ChatOpenAI(model=MODEL, base_url=url + "/v1", temperature=0, max_tokens=200)
    expect("Paris" in model.invoke(QUESTION).content, "invoke")
    expect(model.with_structured_output(Capital).invoke(QUESTION).name in ("Paris", "Rome"), "structured")
    agent = create_react_agent(model, [get_weather])
    try:
        agent.invoke({"messages": [("user", QUESTION)]}, {"recursion_limit": 6})
    except Exception as error:  # as above
        if "Recursion limit" not in str(error):
            raise


# A server of the Model Context Protocol, by either name of its class.
MCP_SERVER = """
from typing import Literal
try:
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server
server = Server("weather")

@server.tool()
def get_weather(city: Literal["Paris", "Rome"], days: int = 1) -> str:
    \"\"\"Weather of a city.\"\"\"
    return f"sunny in {city}"

@server.tool()
def list_cities() -> list[str]:
    \"\"\"Cities whose weather is known.\"\"\"
    return ["Paris", "Rome"]

server.run()
"""


def mcp_client(url):
    import openai
    from mcp import ClientSession, StdioServerParameters, stdio_client

    async def run():
        client = openai.AsyncOpenAI(base_url=url + "/v1")
        parameters = StdioServerParameters(command=sys.executable, args=["-c", MCP_SERVER])
        async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed = [tool.model_dump(by_alias=True) for tool in (await session.list_tools()).tools]
            tools = [{"type": "function", "function": {"name": tool["name"], "description": tool["description"],
                                                       "parameters": tool["inputSchema"]}} for tool in listed]
            expect(len(tools) == 2, listed)
            for tool in tools:
                messages = [{"role": "user", "content": "How is the weather in Paris?"}]
                choice = {"type": "function", "function": {"name": tool["function"]["name"]}}
                for turn in range(2):
                    answer = await client.chat.completions.create(
                        model=MODEL, messages=messages, tools=tools, max_tokens=100, temperature=0,
                        tool_choice=choice if turn == 0 else "none", parallel_tool_calls=False)
                    message = answer.choices[0].message
                    messages.append(message.model_dump(exclude_none=True))
                    for call in message.tool_calls or []:
                        result = await session.call_tool(call.function.name, json.loads(call.function.arguments))
                        content = result.model_dump(by_alias=True)
                        expect(not content["isError"], content)
                        text = "".join(part["text"] for part in content["content"])
                        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
                expect(any(message["role"] == "tool" for message in messages), messages)

    asyncio.run(run())


CLIENTS = {
    "openai": openai_client,
    "anthropic": anthropic_client,
    "litellm": litellm_client,
    "instructor": instructor_client,
    "pydantic-ai-slim": pydantic_ai_client,
    "openai-agents": openai_agents_client,
    "langgraph": langgraph_client,
    "mcp": mcp_client,
}


def main():
    url, names = sys.argv[1].rstrip("/"), sys.argv[2:] or list(CLIENTS)
    failed = False
    for name in names:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name}: skipped: not installed")
            continue
        try:
            CLIENTS[name](url)
            print(f"{name} {version}: ok")
        except Exception:
            failed = True
            print(f"{name} {version}: FAILED")
            traceback.print_exc()
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main())
