# SPDX-License-Identifier: Apache-2.0
"""Programs for OpenAI's API, unchanged, against a running dsv4-server. usage: programs.py URL MODEL NAME

Runs the program NAME, which is installed beside this Python, as its users do, and prints a line with its version and
"ok" or "FAILED"; the exit code is 1 then. MODEL: the model's folder, for programs that count tokens by themselves.
clients.sh installs each in a virtual environment of its own.
"""
import http.server
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import traceback

NAME = "dsv4-tiny"
QUESTION = "What is the capital of France?"
SENTENCE = "The cat sat on the mat and looked at the moon. "


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def run(folder, program, *arguments, timeout=300, accepted="\0", **environment):
    """What the program prints; fails if its exit code is not 0, unless it prints what is accepted."""
    result = subprocess.run(
        [os.path.join(sys.prefix, "bin", program), *map(str, arguments)], cwd=folder, timeout=timeout, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=dict(os.environ, HOME=str(folder), OPENAI_API_KEY="unused", HF_HUB_OFFLINE="1", **environment))
    expect(result.returncode == 0 or accepted in result.stdout, result.stdout[-3000:])
    return result.stdout


def llm(url, model, folder):
    (folder / "extra-openai-models.yaml").write_text(
        f"- model_id: local\n  model_name: {NAME}\n  api_base: {url}/v1\n  supports_schema: true\n"
        "  supports_tools: true\n")

    def ask(*arguments, accepted="\0"):
        return run(folder, "llm", "-m", "local", "-o", "temperature", "0", *arguments, accepted=accepted,
                   LLM_USER_PATH=str(folder))

    expect("Paris" in ask(QUESTION), "streamed")
    expect("Paris" in ask("--no-stream", QUESTION), "whole")
    expect("Paris" in ask("-c", QUESTION), "continued")
    schema = {"type": "object", "properties": {"name": {"enum": ["Paris", "Rome"]}}, "required": ["name"],
              "additionalProperties": False}
    expect(json.loads(ask("--schema", json.dumps(schema), QUESTION))["name"] in ("Paris", "Rome"), "schema")
    # The small model may call for ever; the server has answered.
    ask("--functions", 'def weather(city: str) -> str:\n    "Weather of a city"\n    return "sunny"', "--chain-limit", "2",
        "-o", "max_tokens", "100", QUESTION, accepted="Chain limit of 2 exceeded")


def lm_eval(url, model, folder):
    lines = [{"question": f"{n} and 1 are", "choices": [" two", " three"], "answer": n % 2} for n in range(4)]
    (folder / "data.json").write_text("\n".join(map(json.dumps, lines)))
    common = (f"dataset_path: json\ndataset_kwargs:\n  data_files: {folder}/data.json\ntest_split: train\n"
              "doc_to_text: '{{question}}'\n")
    (folder / "choice.yaml").write_text(
        "task: choice\noutput_type: multiple_choice\n" + common + "doc_to_choice: choices\ndoc_to_target: answer\n"
        "metric_list:\n- metric: acc\n")
    (folder / "until.yaml").write_text(
        "task: until\noutput_type: generate_until\n" + common + "doc_to_target: '{{choices[0]}}'\n"
        "generation_kwargs:\n  until: ['\\n']\n  max_gen_toks: 16\nmetric_list:\n- metric: exact_match\n")
    run(folder, "lm_eval", "--model", "local-completions", "--tasks", "choice,until", "--include_path", folder,
        "--model_args", f"model={NAME},base_url={url}/v1/completions,tokenizer_backend=remote,num_concurrent=2",
        "--output_path", folder / "out")
    results = json.loads(next((folder / "out").rglob("results*.json")).read_text())["results"]
    expect(0 <= results["choice"]["acc,none"] <= 1 and "exact_match,none" in results["until"], results)


def book(folder):
    """A local server with a long text. Returns its URL."""
    (folder / "book.txt").write_text(SENTENCE * 5000)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/book.txt"


def llama_benchy(url, model, folder):
    run(folder, "llama-benchy", "--base-url", url + "/v1", "--model", NAME, "--tokenizer", model, "--book-url",
        book(folder), "--pp", 128, "--tg", 16, "--depth", 0, 256, "--runs", 2, "--concurrency", 1, 2, "--skip-coherence",
        "--exact-tg", "--enable-prefix-caching", "--format", "json", "--save-result", folder / "result.json",
        "--exit-on-first-fail")
    result = (folder / "result.json").read_text()
    expect(json.loads(result) and "tg" in result, result)


def guidellm(url, model, folder):
    (folder / "data.jsonl").write_text("".join(json.dumps({"prompt": f"{n}. " + SENTENCE}) + "\n" for n in range(20)))
    for api in ("/v1/chat/completions", "/v1/completions", "/v1/responses"):
        run(folder, "guidellm", "run", "--backend",
            f"kind=openai_http,target={url},model={NAME},request_format={api},max_tokens=16", "--tokenizer",
            f"kind=huggingface_auto,model={model}", "--data", f"kind=json_file,path={folder}/data.jsonl", "--profile",
            "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=6", "--output",
            f"kind=json,path={folder}/out.json", "--disable-console-interactive", GUIDELLM__MAX_WORKER_PROCESSES="1")
        report = json.loads((folder / "out.json").read_text())
        totals = report["benchmarks"][0]["metrics"]["request_totals"]
        expect(totals["successful"] >= 6 and totals["errored"] == 0, totals)


def aider(url, model, folder):
    (folder / "hello.py").write_text('print("hello")\n')
    # The small model talks until its context is full, and aider takes that for a failure.
    (folder / ".aider.model.settings.yml").write_text(
        f"- name: openai/{NAME}\n  edit_format: whole\n  extra_params:\n    temperature: 0\n    stop: ['.']\n")
    output = run(folder, "aider", "--model", "openai/" + NAME, "--openai-api-base", url + "/v1", "--no-git", "--yes-always",
                 "--no-show-model-warnings", "--no-check-update", "--analytics-disable", "--no-pretty", "--map-tokens", 0,
                 "--edit-format", "whole", "--message", QUESTION, "hello.py")
    expect(" received." in output and "litellm." not in output, output[-3000:])


PROGRAMS = {"llm": llm, "lm_eval": lm_eval, "llama-benchy": llama_benchy, "guidellm": guidellm, "aider-chat": aider}


def main():
    url, model, name = sys.argv[1].rstrip("/"), os.path.abspath(sys.argv[2]), sys.argv[3]
    version = importlib.metadata.version(name)
    with tempfile.TemporaryDirectory() as folder:
        try:
            PROGRAMS[name](url, model, pathlib.Path(folder))
        except Exception:
            print(f"{name} {version}: FAILED")
            traceback.print_exc(file=sys.stdout)
            return 1
    print(f"{name} {version}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
