// SPDX-License-Identifier: Apache-2.0
use crate::{continued, long_prompt, open, prompt, TemporaryFile};
use dsv4::{
    AllowedTokens, Code, Finish, Grammar, GrammarKind, ProgressPhase, ProgressUnit, ReuseLimit,
    Sampling, SessionOptions, SyncOptions, ToolChoice, ToolOptions,
};
use std::ops::ControlFlow;

#[test]
fn steps_spell_the_answer() {
    let engine = open();
    let tokens = prompt(&engine);
    let mut session = engine.session().unwrap();
    assert_eq!(session.sync(&tokens).unwrap().pending_tokens, tokens.len() as i64);
    let mut text = String::new();
    let finish = loop {
        let step = session.step().unwrap();
        text += &step.text;
        if step.finish != Finish::NONE {
            break step.finish;
        }
    };
    assert_eq!(text, "The capital of France is Paris.");
    assert_eq!(finish, Finish::STOP);
    assert_eq!(session.tokens().unwrap()[..tokens.len()], tokens);
    let stats = session.stats().unwrap();
    assert_eq!(stats.prompt_tokens, tokens.len() as i64);
    assert_eq!(stats.used_tokens as usize, session.tokens().unwrap().len());

    // The same prompt again: all tokens except the last are reused.
    let again = session.sync(&tokens).unwrap();
    assert_eq!(again.reused_tokens, tokens.len() as i64 - 1);
    assert_eq!(again.limit, ReuseLimit::LAST_TOKEN);
}

#[test]
fn rewound_and_forked_sessions_continue_alike() {
    let engine = open();
    let tokens = prompt(&engine);
    let mut session = engine.session().unwrap();
    session.sync(&tokens).unwrap();
    let expected = continued(&mut session, 5);
    assert!(session.rewind(tokens.len() as i64).unwrap() > 0);
    let mut fork = session.fork().unwrap();
    assert_eq!(continued(&mut session, 5), expected);
    drop(session);
    assert_eq!(continued(&mut fork, 5), expected);
    assert_eq!(fork.rewind(-1).unwrap_err().code(), Code::INVALID_ARGUMENT);
}

#[test]
fn allowed_tokens_are_those_of_the_next_token() {
    let engine = open();
    let mut session = engine.session().unwrap();
    session.sync(&prompt(&engine)).unwrap();
    let first = session.fork().unwrap().step().unwrap().token;
    let mut allowed = AllowedTokens::new(engine.info().unwrap().vocab_size);
    allowed.forbid(first);
    session.set_allowed(&allowed).unwrap();
    let mut fork = session.fork().unwrap();
    assert_ne!(session.step().unwrap().token, first);
    assert_ne!(fork.step().unwrap().token, first);
    allowed.allow_only(&[40]);
    session.set_allowed(&allowed).unwrap();
    assert_eq!(session.step().unwrap().token, 40);
    session.set_allowed(&allowed).unwrap();
    session.allow_all().unwrap();
    assert_ne!(session.step().unwrap().token, 40);
    let wrong = session.set_allowed(&AllowedTokens::new(32)).unwrap_err();
    assert_eq!(wrong.code(), Code::INVALID_ARGUMENT);
}

#[test]
fn answers_match_their_grammar() {
    let engine = open();
    let answer = |grammar: &Grammar| {
        let sampling = Sampling {
            temperature: 1.5,
            seed: 1,
            max_tokens: 60,
            grammar: Some(grammar.clone()),
            ..Default::default()
        };
        let options = SessionOptions { sampling, cache_salt: 0 };
        let mut session = engine.session_with(&options).unwrap();
        session.sync(&prompt(&engine)).unwrap();
        let mut text = String::new();
        loop {
            let step = session.step().unwrap();
            text += &step.text;
            if step.finish != Finish::NONE {
                return text;
            }
        }
    };
    let regex = answer(&engine.grammar(GrammarKind::REGEX, "[0-9]{3}").unwrap());
    assert!(regex.len() == 3 && regex.bytes().all(|c| c.is_ascii_digit()), "{}", regex);
    let ebnf = answer(&engine.grammar(GrammarKind::EBNF, "root ::= \"a\" \"b\"").unwrap());
    assert_eq!(ebnf, "ab");
    let schema = answer(&engine.grammar(GrammarKind::SCHEMA, "{\"enum\": [7]}").unwrap());
    assert!(schema.contains('7'), "{}", schema);
    let options =
        ToolOptions { choice: ToolChoice::REQUIRED, name: Some("b".into()), ..Default::default() };
    let tools = "[{\"name\": \"a\"}, {\"name\": \"b\"}]";
    let call = answer(&engine.tool_grammar(tools, &options).unwrap());
    assert!(call.contains("invoke name=\"b\">"), "{}", call);
    let error = engine.grammar(GrammarKind::SCHEMA, "{\"maxItems\": -1}").unwrap_err();
    assert_eq!((error.code(), error.argument()), (Code::INVALID_ARGUMENT, "source"));
    assert!(error.message().contains("schema#/maxItems"));
}

#[test]
fn sampling_is_taken_and_told() {
    let engine = open();
    let tokens = prompt(&engine);
    let sampling = Sampling {
        temperature: 0.5,
        top_k: 7,
        seed: 3,
        max_tokens: 3,
        bias: vec![(10, -1.5), (11, 2.0)],
        banned_tokens: vec![12],
        stop_strings: vec!["one".into(), "two".into()],
        log_probs: 2,
        ..engine.sampling().unwrap()
    };
    let options = SessionOptions { sampling, cache_salt: 9 };
    let mut session = engine.session_with(&options).unwrap();
    assert_eq!(session.stats().unwrap().seed, 3);
    session.sync(&tokens).unwrap();
    assert_eq!(continued(&mut session, 10).len(), 3);

    let refused = Sampling { top_p: 2.0, ..Default::default() };
    let error = session.set_sampling(&refused).unwrap_err();
    assert_eq!((error.code(), error.argument()), (Code::INVALID_ARGUMENT, "sampling.top_p"));

    let drawn = Sampling { seed: Sampling::RANDOM_SEED, ..Default::default() };
    session.set_sampling(&drawn).unwrap();
    assert_ne!(session.stats().unwrap().seed, Sampling::RANDOM_SEED);
    assert_eq!(engine.sampling().unwrap().temperature, Sampling::GREEDY);

    // A stop string ends the text before it.
    let stop = Sampling { stop_strings: vec!["France".into()], ..Default::default() };
    session.set_sampling(&stop).unwrap();
    session.sync(&tokens).unwrap();
    let mut text = String::new();
    while !text.is_empty() || session.tokens().unwrap().len() < tokens.len() + 50 {
        let step = session.step().unwrap();
        text += &step.text;
        if step.finish != Finish::NONE {
            assert_eq!(step.finish, Finish::STOP);
            break;
        }
    }
    assert_eq!(text, "The capital of ");
}

#[test]
fn log_probs_are_of_the_likeliest() {
    let engine = open();
    let tokens = prompt(&engine);
    let greedy = Sampling { log_probs: 3, ..Default::default() };
    let options = SessionOptions { sampling: greedy, cache_salt: 0 };
    let mut session = engine.session_with(&options).unwrap();
    let ask = SyncOptions { log_probs_count: 1, log_probs_begin: 1 };
    session.sync_with(&tokens, ask).unwrap();
    let step = session.step().unwrap();
    let last = session.log_probs(tokens.len() as i64).unwrap();
    assert_eq!(last.top.len(), 3);
    assert_eq!(last.top[0], (step.token, last.token));
    assert!(last.top[0].1 >= last.top[1].1 && last.top[1].1 >= last.top[2].1 && last.token <= 0.0);
    assert_eq!(session.log_probs(2).unwrap().top.len(), 1);
    assert_eq!(session.log_probs(9999).unwrap_err().code(), Code::NOT_FOUND);
}

#[test]
fn saved_sessions_continue() {
    let engine = open();
    let file = TemporaryFile::new("saved");
    let mut session = engine.session().unwrap();
    session.sync(&prompt(&engine)).unwrap();
    session.step().unwrap();
    let mut seen = Vec::new();
    session
        .save_with_progress(&file.0, |progress| {
            seen.push((progress.phase, progress.unit, progress.done == progress.total));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(*seen.last().unwrap(), (ProgressPhase::SAVE, ProgressUnit::BYTES, true));
    let memory = session.save_to_memory().unwrap();
    assert_eq!(memory, std::fs::read(&file.0).unwrap());
    let expected = continued(&mut session, 5);

    let mut other = open().session().unwrap();
    other.load(&file.0).unwrap();
    assert_eq!(continued(&mut other, 5), expected);
    other.load_from_memory(&memory).unwrap();
    assert_eq!(continued(&mut other, 5), expected);

    // Cancelled and damaged: the session stays as it was.
    let before = other.tokens().unwrap().to_vec();
    let error = other.load_with_progress(&file.0, |progress| {
        assert_eq!(progress.phase, ProgressPhase::RESTORE);
        ControlFlow::Break(())
    });
    assert_eq!(error.unwrap_err().code(), Code::CANCELLED);
    let mut damaged = memory.clone();
    damaged[memory.len() / 2] ^= 1;
    assert_eq!(other.load_from_memory(&damaged).unwrap_err().code(), Code::CORRUPT);
    assert_eq!(other.load("/nowhere/at/all").unwrap_err().code(), Code::NOT_FOUND);
    assert_eq!(other.tokens().unwrap(), before);
}

#[test]
fn prefill_tells_its_progress() {
    let engine = open();
    let tokens = long_prompt();
    let mut session = engine.session().unwrap();
    session.sync(&tokens).unwrap();
    let left = session.prefill(256).unwrap();
    assert_eq!(left, tokens.len() as i64 - 256);
    let mut last = None;
    let left = session.prefill_with_progress(0, |progress| {
        last = Some(progress);
        ControlFlow::Continue(())
    });
    assert_eq!(left.unwrap(), 0);
    let last = last.unwrap();
    assert_eq!((last.phase, last.unit), (ProgressPhase::PREFILL, ProgressUnit::TOKENS));
    assert_eq!(last.done, last.total);
}
