// SPDX-License-Identifier: Apache-2.0
use crate::{json, model, open, QUESTION};
use dsv4::{
    render_text, ChatEncoder, ChatOptions, Code, Event, Message, Parser, ParserOptions,
    ThinkingMode, Tokenizer, ToolCall,
};

const END: &str = "<｜end▁of▁sentence｜>";

#[test]
fn text_survives_the_tokenizer() {
    let tokenizer = Tokenizer::open(model()).unwrap();
    for text in ["", "Hello, world!", "Émile zählt 1234567 — 数字 🙂\n\t  x"] {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        let bytes: Vec<u8> =
            ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap()).collect();
        assert_eq!(bytes, text.as_bytes());
    }
    let error = tokenizer.decode(&[tokenizer.vocab_size()]).unwrap_err();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);
    assert!(error.argument().starts_with("ids"), "{}", error.argument());
    assert_eq!(tokenizer.token_bytes(-1).unwrap_err().argument(), "id");
}

#[test]
fn users_forge_no_control_token() {
    let tokenizer = Tokenizer::open(model()).unwrap();
    let id = tokenizer.added_token(END).unwrap();
    assert_eq!(tokenizer.encode_with_added_tokens(END).unwrap(), [id]);
    assert!(!tokenizer.encode(END).unwrap().contains(&id));
    let prompt = tokenizer.render(&json(END), &ChatOptions::default()).unwrap();
    assert!(!prompt.contains(&id));
    assert_eq!(tokenizer.added_token("no such token"), None);
    assert_eq!(tokenizer.added_token("a\0b"), None);
}

#[test]
fn structs_and_json_give_the_same_prompt() {
    let engine = open();
    let tokenizer = Tokenizer::open(model()).unwrap();
    let tools = r#"[{"type": "function", "function": {"name": "weather", "description": "d",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]"#;
    let call = ToolCall {
        id: "call_1".into(),
        name: "weather".into(),
        arguments: r#"{"city": "Paris"}"#.into(),
    };
    let messages = [
        Message { tools: tools.into(), ..Message::system("Be brief.") },
        Message::user(QUESTION),
        Message {
            reasoning: "Easy.".into(),
            tool_calls: vec![call],
            ..Message::assistant("Let me see.")
        },
        Message::tool("call_1", "sunny"),
    ];
    let json = format!(
        r#"[{{"role": "system", "content": "Be brief.", "tools": {tools}}},
            {{"role": "user", "content": "{QUESTION}"}},
            {{"role": "assistant", "content": "Let me see.", "reasoning_content": "Easy.",
              "tool_calls": [{{"id": "call_1", "type": "function", "function":
                {{"name": "weather", "arguments": "{{\"city\": \"Paris\"}}"}}}}]}},
            {{"role": "tool", "tool_call_id": "call_1", "content": "sunny"}}]"#
    );
    for thinking in [ThinkingMode::OFF, ThinkingMode::HIGH, ThinkingMode::MAX, ThinkingMode::LOW] {
        let options = ChatOptions { thinking, keep_reasoning: true, ..Default::default() };
        let text = render_text(&json, &options).unwrap();
        assert!(text.contains("sunny") && text.contains("weather") && text.contains(QUESTION));
        let ids = tokenizer.render(&json, &options).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        let mut conversation = engine.conversation().unwrap();
        conversation.sync(&messages, &options).unwrap();
        assert_eq!(conversation.session().tokens().unwrap(), ids);
    }

    // What one encoder writes for HIGH, the other writes for MAX.
    let text = |encoder, thinking| {
        let options = ChatOptions { thinking, encoder, ..Default::default() };
        render_text(&json, &options).unwrap()
    };
    assert_eq!(
        text(ChatEncoder::V0731, ThinkingMode::HIGH),
        text(ChatEncoder::PREVIEW, ThinkingMode::MAX)
    );
    assert!(text(ChatEncoder::V0731, ThinkingMode::MAX).contains("Beyond maximum"));

    // The prompt of a context and what follows it is that of all.
    let options = ChatOptions::default();
    let first =
        r#"[{"role":"user","content":"Hi"},{"role":"assistant","content":"Ho"}]"#.to_string();
    let second = crate::json("Bye");
    let both = format!("{},{}", &first[..first.len() - 1], &second[1..]);
    let context = ChatOptions { context: first.clone(), ..Default::default() };
    let head = tokenizer.render(&first, &options).unwrap();
    let tail = tokenizer.render(&second, &context).unwrap();
    assert_eq!([head, tail].concat(), tokenizer.render(&both, &options).unwrap());

    let role = Message { role: dsv4::Role(99), ..Default::default() };
    let error = engine.conversation().unwrap().sync(&[role], &options).unwrap_err();
    assert_eq!((error.code(), error.argument()), (Code::INVALID_ARGUMENT, "messages[0].role"));
    let error = render_text("[", &options).unwrap_err();
    assert_eq!(error.code(), Code::CORRUPT);
}

fn completion() -> String {
    [
        "Hm.</think>Hi\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n",
        "<｜DSML｜parameter name=\"a\" string=\"true\">é</｜DSML｜parameter>\n",
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        END,
    ]
    .concat()
}

/// Pieces of one kind joined, as cuts decide how many there are.
fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    for event in events {
        match (all.last_mut(), event) {
            (Some(Event::Text(text)), Event::Text(more)) => text.push_str(&more),
            (Some(Event::Reasoning(text)), Event::Reasoning(more)) => text.push_str(&more),
            (
                Some(Event::ToolCallArguments { text, .. }),
                Event::ToolCallArguments { text: more, .. },
            ) => text.push_str(&more),
            (_, event) => all.push(event),
        }
    }
    all
}

#[test]
fn completions_are_parsed_however_they_are_cut() {
    let expected = [
        Event::Reasoning("Hm.".into()),
        Event::Text("Hi".into()),
        Event::ToolCallStart { call: 0, id: "id0".into(), name: "f".into() },
        Event::ToolCallArguments { call: 0, text: r#"{"a": "é"}"#.into(), repaired: false },
        Event::ToolCallEnd { call: 0, repaired: false },
        Event::End { incomplete: false, stopped: true, call: None, text: String::new() },
    ];
    let options = ParserOptions { thinking: ThinkingMode::HIGH, id_prefix: Some("id".into()) };
    let mut parser = Parser::open(&options).unwrap();
    let completion = completion();
    for cut in 0..=completion.len() {
        let (head, tail) = completion.as_bytes().split_at(cut);
        let mut events = parser.feed(head).unwrap();
        events.extend(parser.feed(tail).unwrap());
        events.extend(parser.end().unwrap());
        assert_eq!(joined(events), expected, "cut at {cut}");
    }
    let mut events = parser.feed(b"a<think>b").unwrap();
    events.extend(parser.end().unwrap());
    assert!(matches!(events.last(), Some(Event::End { stopped: false, .. })));
    let nul = ParserOptions { id_prefix: Some("\0".into()), ..Default::default() };
    assert_eq!(Parser::open(&nul).err().unwrap().argument(), "id_prefix");
}
