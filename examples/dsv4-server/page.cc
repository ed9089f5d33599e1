// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/page.h"

namespace server {

const char kPagePolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char kPage[] = R"html(<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>dsv4-server</title>
<style>
  body { font: 16px/1.5 sans-serif; max-width: 46em; margin: 1em auto; padding: 0 1em; }
  .user { background: #eef3fa; color: #111; padding: .5em .8em; border-radius: .5em; }
  .text, .user { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5em 0; }
  details { color: #666; white-space: pre-wrap; }
  .notes { color: #666; font-size: .8em; }
  .error { color: #b00; }
  .call { border-left: .2em solid #8ab; padding-left: .8em; margin: .5em 0; }
  .call code { white-space: pre-wrap; overflow-wrap: anywhere; }
  .call input { width: 100%; box-sizing: border-box; font: inherit; }
  textarea { width: 100%; box-sizing: border-box; font: inherit; }
  form { position: sticky; bottom: 0; background: Canvas; padding: .5em 0; }
</style>
<h1>dsv4-server</h1>
<main id="turns" aria-live="polite"></main>
<form id="form">
  <textarea id="question" rows="3" aria-label="Message" placeholder="Message" autofocus></textarea>
  <button id="send">Send</button>
  <button id="stop" type="button" disabled>Stop</button>
  <button id="clear" type="button">New chat</button>
  <label>Thinking <select id="effort"><option>none<option>low<option>high<option>max</select></label>
  <label>Key <input id="key" type="password" size="8" autocomplete="off"></label>
  <details><summary>Tools</summary><textarea id="tools" rows="6" aria-label="Tools" spellcheck="false"
    placeholder="A JSON list of functions in OpenAI's form. You type the results of their calls."></textarea></details>
</form>
<script>
'use strict';
const at = id => document.getElementById(id);
let messages = [];
let running = null;

function add(parent, kind, tag = 'div') {
  const element = document.createElement(tag);
  element.className = kind;
  parent.append(element);
  return element;
}

// Yields the objects of a stream of server-sent events.
async function* eventsOf(body) {
  const decoder = new TextDecoder();
  let rest = '';
  for (const reader = body.getReader();;) {
    const {done, value} = await reader.read();
    if (done) return;
    const events = (rest + decoder.decode(value, {stream: true})).split('\n\n');
    rest = events.pop();
    for (const event of events) {
      if (event.startsWith('data: ') && event !== 'data: [DONE]') yield JSON.parse(event.slice(6));
    }
  }
}

// Adds a piece of a call of a tool, which is shown in `element`.
function addCall(message, element, piece) {
  message.tool_calls = message.tool_calls || [];
  let call = message.tool_calls[piece.index];
  if (!call) {
    call = {id: piece.id, type: 'function', function: {name: piece.function.name, arguments: ''}};
    message.tool_calls[piece.index] = call;
    add(element, 'call').append(document.createElement('code'));
  }
  call.function.arguments += piece.function.arguments || '';
  element.querySelectorAll('.call code')[piece.index].textContent =
      `${call.function.name}(${call.function.arguments})`;
}

// Asks for the results of a message's calls, which continue the conversation.
function askResults(message, element) {
  const inputs = [...element.querySelectorAll('.call')].map(call => {
    const input = add(call, 'result', 'input');
    input.setAttribute('aria-label', 'Result');
    input.placeholder = 'Result';
    return input;
  });
  const send = add(element, 'results', 'button');
  send.textContent = 'Send results';
  send.onclick = () => {
    if (running) return;
    send.remove();
    const results = message.tool_calls.map(
        (call, i) => ({role: 'tool', tool_call_id: call.id, content: inputs[i].value}));
    for (const input of inputs) input.readOnly = true;
    ask(results);
  };
}

// Shows an answer as it comes. Returns its message.
async function answer(element, signal) {
  const begin = performance.now();
  const tools = at('tools').value.trim() ? JSON.parse(at('tools').value) : undefined;
  const headers = {'Content-Type': 'application/json'};
  if (at('key').value) headers.Authorization = 'Bearer ' + at('key').value;
  const response = await fetch('v1/chat/completions', {
    method: 'POST', headers, signal,
    body: JSON.stringify({messages, tools, stream: true, stream_options: {include_usage: true},
                          reasoning_effort: at('effort').value})});
  if (!response.ok) throw new Error((await response.json()).error.message);
  const message = {role: 'assistant', content: ''};
  let text = null, thought = null, first = 0;
  try {
    for await (const chunk of eventsOf(response.body)) {
      if (chunk.error) throw new Error(chunk.error.message);
      first = first || performance.now();
      const delta = chunk.choices.length ? chunk.choices[0].delta : {};
      if (delta.reasoning_content) {
        if (!thought) {
          const fold = add(element, 'reasoning', 'details');
          fold.open = true;
          add(fold, '', 'summary').textContent = 'Thinking';
          thought = add(fold, '', 'span');
        }
        message.reasoning_content = (message.reasoning_content || '') + delta.reasoning_content;
        thought.textContent = message.reasoning_content;
      }
      if (delta.content) {
        if (thought) thought.parentElement.open = false;
        text = text || add(element, 'text');
        message.content += delta.content;
        text.textContent = message.content;
      }
      for (const piece of delta.tool_calls || []) {
        if (thought) thought.parentElement.open = false;
        addCall(message, element, piece);
      }
      if (chunk.usage) {
        const usage = chunk.usage;
        const seconds = (performance.now() - first) / 1000;
        // A rate of what came all at once says nothing.
        const rate = seconds < 0.02 ? '' :
            `, ${((usage.completion_tokens - 1) / seconds).toFixed(1)} per second`;
        add(element, 'notes').textContent =
            `${usage.prompt_tokens} tokens read, ${usage.prompt_tokens_details.cached_tokens} of ` +
            `them cached; first token after ${((first - begin) / 1000).toFixed(2)} s; ` +
            `${usage.completion_tokens} tokens written${rate}`;
      }
    }
  } catch (error) {
    if (error.name !== 'AbortError') throw error;
    add(element, 'notes').textContent = 'stopped';
  }
  return message;
}

// Adds messages, and shows what the model answers.
async function ask(added) {
  const before = messages.length;
  messages.push(...added);
  const element = add(at('turns'), 'turn');
  const mine = running = new AbortController();
  at('send').disabled = true;
  at('stop').disabled = false;
  try {
    const message = await answer(element, mine.signal);
    if (running === mine) {
      // Calls that were cut off are none.
      if (mine.signal.aborted) delete message.tool_calls;
      messages.push(message);
      if (message.tool_calls) askResults(message, element);
    }
  } catch (error) {
    // The question may be asked again.
    if (running === mine) messages.length = before;
    if (error.name !== 'AbortError') add(element, 'error').textContent = error.message;
  }
  if (running !== mine) return;
  running = null;
  at('send').disabled = false;
  at('stop').disabled = true;
}

at('form').onsubmit = event => {
  event.preventDefault();
  const question = at('question').value.trim();
  if (!question || running) return;
  at('question').value = '';
  add(at('turns'), 'user').textContent = question;
  ask([{role: 'user', content: question}]);
};
at('question').onkeydown = event => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at('form').requestSubmit();
};
at('stop').onclick = () => running && running.abort();
at('clear').onclick = () => {
  if (running) running.abort();
  running = null;
  messages = [];
  at('turns').replaceChildren();
  at('send').disabled = false;
  at('stop').disabled = true;
};
</script>
</html>
)html";

}  // namespace server
