// SPDX-License-Identifier: Apache-2.0
use crate::{open, QUESTION};
use dsv4::{ChatOptions, Code, Conversation, Event, Finish, Message, SessionOptions};

/// Text of the turn, and whether its end was the last event.
fn answer(conversation: &mut Conversation) -> (String, bool) {
    let mut text = String::new();
    let mut ended = false;
    for event in conversation.events() {
        assert!(!ended);
        match event.unwrap() {
            Event::Text(piece) => text += &piece,
            Event::End { stopped, .. } => ended = stopped,
            other => panic!("{other:?}"),
        }
    }
    (text, ended)
}

const PARIS: &str = "The capital of France is Paris.";

#[test]
fn turns_follow_each_other() {
    let engine = open();
    let mut conversation = engine.conversation(&[Message::user(QUESTION)]).unwrap();
    assert_eq!(answer(&mut conversation), (PARIS.into(), true));
    assert_eq!(conversation.finish(), Finish::STOP);
    assert_eq!(conversation.message_count().unwrap(), 2);
    assert!(conversation.reply_json().unwrap().contains(PARIS));
    // The turn is over: there is no new question.
    let error = conversation.events().next().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);

    conversation.append_json(r#"[{"role": "user", "content": "And of Italy?"}]"#).unwrap();
    assert!(conversation.events().all(|event| event.is_ok()));
    assert_eq!(conversation.message_count().unwrap(), 4);
    assert!(conversation.session().stats().unwrap().cached_tokens > 0);

    conversation.truncate(1).unwrap();
    assert_eq!(answer(&mut conversation), (PARIS.into(), true));
    assert_eq!(conversation.truncate(9).unwrap_err().code(), Code::INVALID_ARGUMENT);
    let nothing = conversation.append(&[]).unwrap_err();
    assert_eq!(nothing.code(), Code::INVALID_ARGUMENT);
}

#[test]
fn a_turn_may_be_left_and_taken_up_again() {
    let engine = open();
    let messages = format!(r#"[{{"role": "user", "content": "{QUESTION}"}}]"#);
    let (options, chat) = (SessionOptions::default(), ChatOptions::default());
    let mut conversation = engine.conversation_json(&messages, &options, &chat).unwrap();
    let first = conversation.events().next().unwrap().unwrap();
    let mut fork = conversation.fork().unwrap();
    let (rest, ended) = answer(&mut conversation);
    assert_eq!(first, Event::Text(PARIS[..PARIS.len() - rest.len()].into()));
    assert!(ended);
    assert_eq!(answer(&mut fork), (rest, true));

    // Or ended where it is.
    conversation.truncate(1).unwrap();
    conversation.step().unwrap();
    let events = conversation.end_turn().unwrap();
    assert!(matches!(events.last(), Some(Event::End { stopped: false, .. })), "{events:?}");
    assert!(!conversation.reply_json().unwrap().contains("Paris"));
}

#[test]
fn what_pulls_the_timeline_away_is_told() {
    let engine = open();
    let mut conversation = engine.conversation(&[Message::user(QUESTION)]).unwrap();
    conversation.session_mut().sync(&[1, 2, 3]).unwrap();
    let error = conversation.events().next().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);
    conversation.set_chat_options(&ChatOptions::default()).unwrap();
    assert_eq!(answer(&mut conversation), (PARIS.into(), true));
}

#[test]
fn conversations_step_in_one_pass_and_are_edited() {
    let engine = open();
    let mut first = engine.conversation(&[Message::user(QUESTION)]).unwrap();
    let mut second = engine.conversation(&[Message::user("Hello")]).unwrap();
    second.replace_json(0, 1, r#"[{"role": "user", "content": "nothing"}]"#).unwrap();
    second.replace(0, 1, &[Message::user(QUESTION)]).unwrap();
    let listed = second.messages_json(0, 9).unwrap();
    assert_eq!(listed, first.messages_json(0, 9).unwrap());
    assert!(listed.contains(QUESTION));
    while first.finish() == Finish::NONE {
        for step in engine.step_conversations(&mut [&mut first, &mut second]).unwrap() {
            step.unwrap();
        }
    }
    assert_eq!(second.finish(), Finish::STOP);
    for conversation in [&mut first, &mut second] {
        assert_eq!(answer(conversation), (PARIS.into(), true));
    }
    assert!(engine.step_conversations(&mut [&mut first]).unwrap()[0].is_err());
    assert!(engine.step_conversations(&mut []).unwrap().is_empty());

    first.append(&[Message::user(QUESTION)]).unwrap();
    let cancel = first.session().cancel_handle();
    cancel.stop();
    assert_eq!(first.step().err().unwrap().code(), Code::CANCELLED);
    cancel.resume();
    first.step().unwrap();
}
