// SPDX-License-Identifier: Apache-2.0
use crate::{json, open, QUESTION};
use dsv4::{ChatOptions, Code, Conversation, Engine, Event, Finish, Message};

/// A conversation that was synced to the question.
fn ask(engine: &Engine) -> Conversation {
    let mut conversation = engine.conversation().unwrap();
    conversation.sync(&[Message::user(QUESTION)], &ChatOptions::default()).unwrap();
    conversation
}

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
    let chat = ChatOptions::default();
    let mut conversation = ask(&engine);
    assert_eq!(answer(&mut conversation), (PARIS.into(), true));
    assert_eq!(conversation.finish(), Finish::STOP);
    assert_eq!(conversation.reply(), &Message::assistant(PARIS));
    assert!(conversation.reply_json().unwrap().contains(PARIS));
    // The turn is over: there is no new question.
    let error = conversation.events().next().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);

    let used = conversation.session().stats().unwrap().used_tokens;
    let messages =
        [Message::user(QUESTION), conversation.reply().clone(), Message::user("And of Italy?")];
    // All but the token that ended the turn, which was never computed.
    assert_eq!(conversation.sync(&messages, &chat).unwrap().reused_tokens, used - 1);
    assert!(conversation.events().all(|event| event.is_ok()));

    conversation.sync(&messages[..1], &chat).unwrap();
    assert_eq!(answer(&mut conversation), (PARIS.into(), true));
    let error = conversation.sync_json("{}", &chat).unwrap_err();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);
}

#[test]
fn a_turn_may_be_left_and_taken_up_again() {
    let engine = open();
    let chat = ChatOptions::default();
    let mut conversation = engine.conversation().unwrap();
    conversation.sync_json(&json(QUESTION), &chat).unwrap();
    let first = conversation.events().next().unwrap().unwrap();
    let mut fork = conversation.fork().unwrap();
    let (rest, ended) = answer(&mut conversation);
    assert_eq!(first, Event::Text(PARIS[..PARIS.len() - rest.len()].into()));
    assert!(ended);
    assert_eq!(answer(&mut fork), (rest, true));
    assert_eq!(fork.reply().content, PARIS);

    // Or ended where it is.
    conversation.sync_json(&json(QUESTION), &chat).unwrap();
    conversation.step().unwrap();
    let events = conversation.end_turn().unwrap();
    assert!(matches!(events.last(), Some(Event::End { stopped: false, .. })), "{events:?}");
    assert!(!conversation.reply_json().unwrap().contains("Paris"));
}

#[test]
fn what_pulls_the_timeline_away_is_told() {
    let engine = open();
    let mut conversation = ask(&engine);
    conversation.session_mut().sync(&[1, 2, 3]).unwrap();
    let error = conversation.events().next().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);
    conversation.sync(&[Message::user(QUESTION)], &ChatOptions::default()).unwrap();
    assert_eq!(answer(&mut conversation), (PARIS.into(), true));
}

#[test]
fn conversations_step_in_one_pass() {
    let engine = open();
    let (mut first, mut second) = (ask(&engine), ask(&engine));
    while first.finish() == Finish::NONE {
        for step in engine.step_conversations(&mut [&mut first, &mut second]).unwrap() {
            step.unwrap();
        }
    }
    assert_eq!(second.finish(), Finish::STOP);
    for conversation in [&mut first, &mut second] {
        assert_eq!(conversation.reply().content, PARIS);
        assert_eq!(answer(conversation), (PARIS.into(), true));
    }
    assert!(engine.step_conversations(&mut [&mut first]).unwrap()[0].is_err());
    assert!(engine.step_conversations(&mut []).unwrap().is_empty());

    first.sync(&[Message::user(QUESTION)], &ChatOptions::default()).unwrap();
    let cancel = first.session().cancel_handle();
    cancel.stop();
    assert_eq!(first.step().err().unwrap().code(), Code::CANCELLED);
    cancel.resume();
    first.step().unwrap();
}
