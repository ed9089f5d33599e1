// SPDX-License-Identifier: Apache-2.0
'use strict';

const at = id => document.getElementById(id);
const kPrefix = 'dsv4.chat.';  // of what is kept in the browser, one entry for each conversation
const kDrawMs = 40;            // between two looks of an answer that is being written

let chat = newChat();
// In OpenAI's form. Members that are not the API's: `notes`, statistics that are shown.
let messages = [];
let running = null;  // the AbortController of the answer that is being written

function newChat() {
  return {id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8)};
}

function add(parent, kind, tag = 'div', text = '') {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  if (text) element.textContent = text;
  if (tag === 'button') element.type = 'button';
  parent.append(element);
  return element;
}

function say(text) {
  at('status').textContent = text;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Only pages of https and of this machine have the clipboard.
    const area = add(document.body, '', 'textarea');
    area.value = text;
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    if (!done) return say('The browser does not let the page copy.');
  }
  say('Copied.');
}

// What is kept in the browser.

function keptChats() {
  const chats = [];
  try {
    for (let i = 0; i < localStorage.length; ++i) {
      const key = localStorage.key(i);
      if (!key.startsWith(kPrefix)) continue;
      try {
        const kept = JSON.parse(localStorage.getItem(key));
        if (Array.isArray(kept.messages))
          chats.push({id: key.slice(kPrefix.length), title: String(kept.title), time: Number(kept.time)});
      } catch {
        // Not the page's.
      }
    }
  } catch {
    // The browser keeps nothing for this page.
  }
  return chats.sort((a, b) => b.time - a.time);
}

function keep() {
  const question = messages.find(message => message.role === 'user');
  const title = question ? question.content.trim().split('\n')[0].slice(0, 60) : '';
  const text = JSON.stringify({title, time: Date.now(), messages});
  for (;;) {
    try {
      if (messages.length) localStorage.setItem(kPrefix + chat.id, text);
      else localStorage.removeItem(kPrefix + chat.id);
      break;
    } catch (error) {
      // The oldest conversation makes room.
      const oldest = keptChats().filter(other => other.id !== chat.id).pop();
      if (!oldest) {
        say('The browser has no room to keep this conversation.');
        break;
      }
      localStorage.removeItem(kPrefix + oldest.id);
    }
  }
  listChats();
}

function listChats() {
  const list = at('chats');
  const kept = keptChats();
  list.replaceChildren();
  if (!kept.some(other => other.id === chat.id)) kept.unshift({id: chat.id, title: 'New chat'});
  for (const {id, title} of kept) {
    const option = add(list, '', 'option', title);
    option.value = id;
    option.selected = id === chat.id;
  }
}

function open(id) {
  if (running) running.abort();
  setRunning(null);
  let kept = null;
  try {
    kept = JSON.parse(localStorage.getItem(kPrefix + id));
  } catch {
    // Nothing is kept.
  }
  chat = id ? {id} : newChat();
  messages = kept && Array.isArray(kept.messages) ? kept.messages : [];
  say('');
  show();
  listChats();
  at('question').focus();
}

// What is shown.

function addAction(element, name, action) {
  const button = add(element.querySelector('.actions') || add(element, 'actions'), name.toLowerCase(),
                     'button', name);
  button.onclick = () => { if (!running) action(); };
}

function showQuestion(message, index) {
  const element = add(at('turns'), 'user');
  add(element, 'question', 'div', message.content);
  addAction(element, 'Copy', () => copy(message.content));
  addAction(element, 'Edit', () => edit(element, message, index));
  return element;
}

function edit(element, message, index) {
  if (element.querySelector('textarea')) return;
  const question = element.querySelector('.question');
  const actions = element.querySelector('.actions');
  question.hidden = actions.hidden = true;
  const area = add(element, '', 'textarea');
  area.setAttribute('aria-label', 'Edited message');
  area.value = message.content;
  area.rows = Math.min(12, message.content.split('\n').length + 1);
  const buttons = add(element, 'buttons');
  const close = () => {
    area.remove();
    buttons.remove();
    question.hidden = actions.hidden = false;
    at('question').focus();
  };
  const send = () => {
    const content = area.value.trim();
    if (content && !running) ask(index, [{role: 'user', content}]);
  };
  add(buttons, 'resend', 'button', 'Send').onclick = send;
  add(buttons, 'cancel', 'button', 'Cancel').onclick = close;
  area.onkeydown = event => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      close();
    } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  };
  area.focus();
}

// Shows an answer, all of it or as much as there is.
function drawAnswer(element, message, complete) {
  const part = (kind, tag) => element.querySelector(':scope > .' + kind) || add(element, kind, tag);
  if (message.reasoning_content) {
    const fold = part('reasoning', 'details');
    if (!fold.firstChild) {
      add(fold, '', 'summary', 'Thinking');
      add(fold, '', 'span');
      fold.open = !complete;
    }
    fold.lastChild.textContent = message.reasoning_content;
    if (message.content || message.tool_calls) {
      if (!fold.dataset.folded) fold.open = false;
      fold.dataset.folded = 'once';
    }
  }
  if (message.content) showMarkdown(part('text'), message.content);
  (message.tool_calls || []).forEach((call, i) => {
    const shown = element.querySelectorAll('.call')[i] || add(element, 'call');
    const code = shown.querySelector('code') || add(shown, '', 'code');
    code.textContent = `${call.function.name}(${call.function.arguments})`;
  });
}

function finishAnswer(element, message, index) {
  if (message.notes) add(element, 'notes', 'div', message.notes);
  if (message.content) addAction(element, 'Copy', () => copy(message.content));
  addAction(element, 'Regenerate', () => ask(index, []));
  if (message.tool_calls) showResults(element, message, index);
}

// The results of a message's calls, which continue the conversation; typed here if there are none.
function showResults(element, message, index) {
  const given = messages.slice(index + 1, index + 1 + message.tool_calls.length)
                    .filter(result => result.role === 'tool');
  const inputs = [...element.querySelectorAll('.call')].map((call, i) => {
    const input = add(call, 'result', 'input');
    input.setAttribute('aria-label', 'Result');
    input.placeholder = 'Result';
    input.value = given[i] ? given[i].content : '';
    input.readOnly = given.length > 0;
    return input;
  });
  if (given.length) return;
  add(element, 'results', 'button', 'Send results').onclick = () => {
    if (running) return;
    ask(index + 1, message.tool_calls.map(
                       (call, i) => ({role: 'tool', tool_call_id: call.id, content: inputs[i].value})));
  };
}

function show() {
  at('turns').replaceChildren();
  messages.forEach((message, index) => {
    if (message.role === 'user') {
      showQuestion(message, index);
    } else if (message.role === 'assistant') {
      const element = add(at('turns'), 'turn');
      drawAnswer(element, message, true);
      finishAnswer(element, message, index);
    }
  });
  window.scrollTo(0, document.body.scrollHeight);
}

// Asking.

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

function addDelta(message, delta) {
  if (delta.reasoning_content)
    message.reasoning_content = (message.reasoning_content || '') + delta.reasoning_content;
  if (delta.content) message.content += delta.content;
  for (const piece of delta.tool_calls || []) {
    message.tool_calls = message.tool_calls || [];
    const call = message.tool_calls[piece.index] ||= {
      id: piece.id, type: 'function', function: {name: piece.function.name, arguments: ''}};
    call.function.arguments += piece.function.arguments || '';
  }
}

function notesOf(usage, begin, first) {
  const seconds = (performance.now() - first) / 1000;
  // A rate of what came all at once says nothing.
  const rate = seconds < 0.02 ? '' :
      `, ${((usage.completion_tokens - 1) / seconds).toFixed(1)} per second`;
  return `${usage.prompt_tokens} tokens read, ${usage.prompt_tokens_details.cached_tokens} of ` +
      `them cached; first token after ${((first - begin) / 1000).toFixed(2)} s; ` +
      `${usage.completion_tokens} tokens written${rate}`;
}

// Shows an answer as it comes. Returns its message.
async function answer(element, signal) {
  const begin = performance.now();
  const tools = at('tools').value.trim() ? JSON.parse(at('tools').value) : undefined;
  const headers = {'Content-Type': 'application/json'};
  if (at('key').value) headers.Authorization = 'Bearer ' + at('key').value;
  const response = await fetch('v1/chat/completions', {
    method: 'POST', headers, signal,
    body: JSON.stringify({
      messages: messages.map(({notes, ...message}) => message), tools, stream: true,
      stream_options: {include_usage: true}, reasoning_effort: at('effort').value})});
  if (!response.ok) throw new Error((await response.json()).error.message);
  const message = {role: 'assistant', content: ''};
  let first = 0, drawing = 0;
  const draw = () => {
    drawing = 0;
    const at_end = window.innerHeight + window.scrollY >= document.body.scrollHeight - 40;
    drawAnswer(element, message, false);
    if (at_end) window.scrollTo(0, document.body.scrollHeight);
  };
  try {
    for await (const chunk of eventsOf(response.body)) {
      if (chunk.error) throw new Error(chunk.error.message);
      first = first || performance.now();
      if (chunk.choices.length) addDelta(message, chunk.choices[0].delta);
      if (chunk.usage) message.notes = notesOf(chunk.usage, begin, first);
      drawing = drawing || setTimeout(draw, kDrawMs);
    }
  } catch (error) {
    if (error.name !== 'AbortError') throw error;
    message.notes = 'stopped';
    // Calls that were cut off are none.
    delete message.tool_calls;
    for (const call of element.querySelectorAll('.call')) call.remove();
  } finally {
    clearTimeout(drawing);
  }
  draw();
  return message;
}

function setRunning(controller) {
  running = controller;
  at('send').disabled = controller !== null;
  at('stop').disabled = controller === null;
}

// Keeps so many messages, adds others, and shows what the model answers.
async function ask(kept, added) {
  const before = messages;
  messages = [...messages.slice(0, kept), ...added];
  show();
  const element = add(at('turns'), 'turn');
  const mine = new AbortController();
  setRunning(mine);
  say('Answering; Escape stops.');
  try {
    const message = await answer(element, mine.signal);
    if (running !== mine) return;
    messages.push(message);
    finishAnswer(element, message, messages.length - 1);
    say('');
    keep();
  } catch (error) {
    if (running !== mine) return;
    // The question may be asked again.
    messages = before;
    const question = added.length && added[0].role === 'user' ? added[0].content : '';
    if (!at('question').value) at('question').value = question;
    add(element, 'error', 'div', error.name === 'AbortError' ? 'stopped' : error.message);
    say('');
  }
  setRunning(null);
}

at('form').onsubmit = event => {
  event.preventDefault();
  const question = at('question').value.trim();
  if (!question || running) return;
  at('question').value = '';
  ask(messages.length, [{role: 'user', content: question}]);
};
at('question').onkeydown = event => {
  if (event.key === 'ArrowUp' && !at('question').value && !running) {
    const buttons = document.querySelectorAll('.user .edit');
    if (!buttons.length) return;
    event.preventDefault();
    buttons[buttons.length - 1].click();
  }
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at('form').requestSubmit();
};
document.addEventListener('keydown', event => {
  if (event.key === 'Escape' && running) running.abort();
});
// Of blocks of code, which are drawn anew while an answer is written.
at('turns').addEventListener('click', event => {
  if (event.target.matches('.code .copy'))
    copy(event.target.closest('.code').querySelector('code').textContent);
});
at('stop').onclick = () => running && running.abort();
at('clear').onclick = () => open('');
at('delete').onclick = () => {
  if (running) running.abort();
  messages = [];
  keep();
  open('');
};
at('chats').onchange = () => open(at('chats').value);
listChats();
