# SPDX-License-Identifier: Apache-2.0
"""Answers of a running dsv4-server to schemas of tools, judged by the package jsonschema.

usage: schemas.py URL SCHEMAS [--tries N]

Asks for an answer under each schema of the file SCHEMAS (tests/lib/grammar/tool_schemas.json), and, where the schema is
that of an object, for a call of a tool with it. Every answer that ends by itself must be valid without the keywords that
the header Dsv4-Unenforced names. An answer may be cut off by its length: then it is asked for with another seed, and
after that under the schema with bounds for what may go on for ever: other members, items, characters.
Prints a summary; the exit code is 1 if an answer is not valid or a request is refused.
"""
import argparse
import collections
import concurrent.futures
import copy
import importlib.metadata
import json
import sys
import urllib.error
import urllib.parse
import urllib.request

import jsonschema

MODEL = "dsv4-tiny"


def post(url, body):
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer), answer.headers.get("Dsv4-Unenforced", "")
    except urllib.error.HTTPError as error:
        return json.load(error), ""


def without(schema, places, prefix):
    """The schema without what stands at the places, and whether all of them were found."""
    schema, found = copy.deepcopy(schema), True
    for place in places:
        place = urllib.parse.unquote(place)
        if not place.startswith(prefix):
            found = False
            continue
        path = [step.replace("~1", "/").replace("~0", "~") for step in place[len(prefix):].split("/")[1:]]
        target = schema
        try:
            for step in path[:-1]:
                target = target[int(step)] if isinstance(target, list) else target[step]
            del target[path[-1]]
        except (KeyError, IndexError, TypeError, ValueError):
            found = False
    return schema, found


def check(schema, text):
    """What is wrong with the text; "" for nothing."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    # A name that nobody publishes is no dialect.
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        errors = list(validator(schema).iter_errors(value))
    except Exception as error:
        return f"jsonschema cannot tell: {error!r}"
    return "; ".join(error.message[:200] for error in errors[:3])


def bounded(schema):
    """The schema with bounds where it has none. Combinations may then have no answer."""
    if isinstance(schema, list):
        return [bounded(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"):
            result[key] = {name: bounded(part) for name, part in value.items()} if isinstance(value, dict) else value
        elif key in ("enum", "const", "default", "examples", "required", "example"):
            result[key] = value
        else:
            result[key] = bounded(value)
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        result.setdefault("additionalProperties", False)
    elif kind == "object":
        result.setdefault("maxProperties", max(2, schema.get("minProperties", 0)))
    elif kind == "array":
        result.setdefault("maxItems", max(2, schema.get("minItems", 0)))
    elif kind == "string" and not {"pattern", "format", "enum", "const"} & set(schema):
        result.setdefault("maxLength", max(12, schema.get("minLength", 0)))
    return result


def ask(url, case, as_tool, tries):
    outcome = ask_schema(url, case["schema"], as_tool, tries)
    if outcome[0] != "cut off":
        return outcome
    again = ask_schema(url, bounded(case["schema"]), as_tool, tries)
    return ("valid with bounds", *again[1:]) if again[0] == "valid" else outcome if again[0] == "refused" else again


def ask_schema(url, schema, as_tool, tries):
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Fill in the form."}], "max_tokens": 200}
    if as_tool:
        body["tools"] = [{"type": "function", "function": {"name": "tool", "parameters": schema}}]
        body["tool_choice"] = "required"
        prefix = "tools#/0/function/parameters"
    else:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        prefix = "schema#"
    cut = ""
    for seed in range(tries):
        # Colder and colder: the small model seldom ends what may go on.
        answer, header = post(url, dict(body, seed=seed, temperature=1 - seed / 4))
        if "error" in answer:
            return "refused", answer["error"]["message"], header
        places = [place for place in header.split(", ") if place]
        choice = answer["choices"][0]
        if choice["finish_reason"] == "length":
            cut = "cut off"
            continue
        reduced, found = without(schema, places, prefix)
        texts = [choice["message"]["content"]]
        if as_tool:
            texts = [call["function"]["arguments"] for call in choice["message"].get("tool_calls") or []]
        for text in texts or [""]:
            wrong = check(reduced, text)
            if wrong and not found:
                return "not judged", f"{header}: {wrong}", header
            if wrong.startswith("jsonschema cannot tell"):
                return "not judged", wrong, header
            if wrong:
                return "WRONG", f"{wrong} in {text[:300]}", header
        return "valid", "", header
    return cut, "", ""


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s URL SCHEMAS [--tries N]")
    parser.add_argument("url")
    parser.add_argument("schemas")
    parser.add_argument("--tries", type=int, default=3)
    arguments = parser.parse_args()
    with open(arguments.schemas, encoding="utf-8") as file:
        cases = json.load(file)
    jobs = [(case, as_tool) for as_tool in (False, True) for case in cases
            if not as_tool or (isinstance(case["schema"], dict) and case["schema"].get("type") == "object")]
    url = arguments.url.rstrip("/")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda job: ask(url, *job, arguments.tries), jobs))
    counts = {False: collections.Counter(), True: collections.Counter()}
    reported = 0
    for (case, as_tool), (outcome, text, header) in zip(jobs, results):
        counts[as_tool][outcome] += 1
        reported += header != ""
        if not outcome.startswith("valid"):
            print(f"{'tool' if as_tool else 'answer'}, {case['name']}: {outcome} {text}".rstrip())
    print(f"jsonschema {importlib.metadata.version('jsonschema')}, {len(cases)} schemas; {reported} of {len(jobs)} "
          "answers name what is not enforced")
    for as_tool, name in ((False, "answers"), (True, "arguments of calls")):
        print(f"{name}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts[as_tool].items())))
    return any(counts[as_tool]["WRONG"] + counts[as_tool]["refused"] for as_tool in counts)


if __name__ == "__main__":
    sys.exit(main())
