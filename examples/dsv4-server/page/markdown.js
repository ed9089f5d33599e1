// SPDX-License-Identifier: Apache-2.0
// Shows Markdown. The library marked reads it; the elements are made here, one by one, so that no
// text of a model is ever read as HTML. Images are not loaded, and only links to the web are links.
'use strict';

const showMarkdown = (() => {
  const kOptions = {...marked.getDefaults(), gfm: true, breaks: true, mangle: false};
  const kEntities = {amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0'};
  const kElements = {blockquote: 'blockquote', del: 'del', em: 'em', paragraph: 'p', strong: 'strong'};

  // Text of tokens is escaped for HTML.
  function plain(text) {
    return text.replace(/&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|(\w+));/g, (all, decimal, hex, name) => {
      if (name) return Object.hasOwn(kEntities, name) ? kEntities[name] : all;
      const code = decimal ? Number(decimal) : parseInt(hex, 16);
      return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : all;
    });
  }

  function add(parent, tag, children) {
    const element = document.createElement(tag);
    if (children) addAll(element, children);
    parent.append(element);
    return element;
  }

  function addLink(parent, href, children) {
    let url = null;
    try {
      url = new URL(href);
    } catch {
      // Not a whole address.
    }
    if (!url || !['http:', 'https:', 'mailto:'].includes(url.protocol)) return addAll(parent, children);
    const link = add(parent, 'a', children);
    link.href = url.href;
    link.title = url.href;
    link.target = '_blank';
    link.rel = 'noopener noreferrer';
  }

  function addCode(parent, token) {
    const block = add(parent, 'div');
    block.className = 'code';
    const bar = add(block, 'div');
    bar.className = 'bar';
    add(bar, 'span').textContent = (token.lang || '').split(/\s/)[0];
    const copy = add(bar, 'button');
    copy.type = 'button';
    copy.className = 'copy';
    copy.textContent = 'Copy';
    copy.setAttribute('aria-label', 'Copy the code');
    add(add(block, 'pre'), 'code').textContent = token.text;
  }

  function addTable(parent, token) {
    const table = add(parent, 'table');
    const addRow = (part, tag, cells) => {
      const row = add(part, 'tr');
      cells.forEach((cell, i) => {
        const element = add(row, tag, cell.tokens);
        if (token.align[i]) element.className = token.align[i];
      });
    };
    addRow(add(table, 'thead'), 'th', token.header);
    const body = add(table, 'tbody');
    for (const row of token.rows) addRow(body, 'td', row);
  }

  function addList(parent, token) {
    const list = add(parent, token.ordered ? 'ol' : 'ul');
    if (token.ordered && token.start !== 1) list.start = token.start;
    for (const item of token.items) {
      const element = add(list, 'li');
      if (item.task) {
        const box = add(element, 'input');
        box.type = 'checkbox';
        box.checked = item.checked;
        box.disabled = true;
        element.append(' ');
      }
      addAll(element, item.tokens);
    }
  }

  function addAll(parent, tokens) {
    for (const token of tokens) {
      switch (token.type) {
        case 'blockquote': case 'del': case 'em': case 'paragraph': case 'strong':
          add(parent, kElements[token.type], token.tokens);
          break;
        case 'heading':
          add(parent, 'h' + token.depth, token.tokens);
          break;
        case 'hr': case 'br':
          add(parent, token.type);
          break;
        case 'code':
          addCode(parent, token);
          break;
        case 'codespan':
          add(parent, 'code').textContent = plain(token.text);
          break;
        case 'table':
          addTable(parent, token);
          break;
        case 'list':
          addList(parent, token);
          break;
        case 'link':
          addLink(parent, token.href, token.tokens);
          break;
        case 'image':
          addLink(parent, token.href, [{type: 'text', text: token.text || token.href}]);
          break;
        case 'html':
          // HTML is text, but for the line break that has no other form in tables.
          if (/^<br\s*\/?>$/i.test(token.raw.trim())) add(parent, 'br');
          else parent.append(token.raw);
          break;
        case 'space': case 'def':
          break;
        default:
          if (token.tokens) addAll(parent, token.tokens);
          else parent.append(plain(token.text === undefined ? token.raw : token.text));
      }
    }
  }

  return (element, text) => {
    element.replaceChildren();
    try {
      // A block of code that is still being written needs the line's end.
      addAll(element, marked.lexer(text + '\n', kOptions));
    } catch {
      // Nested too deeply.
      element.textContent = text;
    }
  };
})();
