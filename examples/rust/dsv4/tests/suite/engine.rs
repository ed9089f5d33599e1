// SPDX-License-Identifier: Apache-2.0
use crate::{continued, model, open, prompt};
use dsv4::{Backend, Canary, Code, Drafter, Engine, EngineOptions, GroupOptions};
use std::ops::ControlFlow;

#[test]
fn a_missing_folder_is_named() {
    let error = Engine::open("/nowhere/at/all", &EngineOptions::default()).err().unwrap();
    assert_eq!(error.code(), Code::NOT_FOUND);
    assert!(error.message().contains("/nowhere/at/all"), "{error}");
    assert!(error.to_string().starts_with("NOT_FOUND: "), "{error}");
}

#[test]
fn a_refused_option_is_named() {
    let options = EngineOptions { threads: -1, ..Default::default() };
    let error = Engine::open(model(), &options).err().unwrap();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);
    assert_eq!(error.argument(), "options.threads");
    assert_eq!(Engine::plan(model(), &options).err().unwrap(), error);
}

#[test]
fn a_path_with_a_nul_is_refused() {
    let error = Engine::open("models\0tiny", &EngineOptions::default()).err().unwrap();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);
    assert_eq!(error.argument(), "path");
}

#[test]
fn settings_reach_the_library() {
    let with = |setting: &str| EngineOptions {
        backend: Backend::CPU,
        settings: vec!["numerics=published".into(), setting.into()],
        ..Default::default()
    };
    let error = Engine::plan(model(), &with("tuning_dir=tables")).err().unwrap();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert_eq!(error.argument(), "options.tuning_dir");
    let error = Engine::plan(model(), &with("tuning=tables")).err().unwrap();
    assert_eq!(error.argument(), "options.settings[1]");
    let error = Engine::plan(model(), &with("ta\0bles")).err().unwrap();
    assert_eq!(error.argument(), "settings");
}

#[test]
fn budgets_of_weights_reach_the_library() {
    let options = |device_weight_bytes, host_weight_bytes| EngineOptions {
        backend: Backend::CPU,
        device_weight_bytes,
        host_weight_bytes,
        ..Default::default()
    };
    let error = Engine::plan(model(), &options(-1, 0)).err().unwrap();
    assert_eq!(error.argument(), "options.device_weight_bytes");
    let error = Engine::plan(model(), &options(0, -1)).err().unwrap();
    assert_eq!(error.argument(), "options.host_weight_bytes");
}

#[test]
fn groups_are_refused_on_the_cpu() {
    let mut options = EngineOptions {
        backend: Backend::CPU,
        group: GroupOptions { size: 2, rank: 1, ..Default::default() },
        ..Default::default()
    };
    let error = dsv4::serve_group(model(), &options, |_| ControlFlow::Continue(())).err().unwrap();
    assert!(error.to_string().contains("group_size = 2 on backend cpu"), "{error}");
    options.group.id = "id".to_string();
    let error = dsv4::serve_group(model(), &options, |_| ControlFlow::Continue(())).err().unwrap();
    assert!(error.to_string().contains("\"id\" is not a group id"), "{error}");
    let error = dsv4::create_group_id(&EngineOptions::default()).err().unwrap();
    assert!(error.to_string().contains("group_size = 0"), "{error}");
}

#[test]
fn the_plan_is_what_is_opened() {
    let options = EngineOptions {
        backend: Backend::CPU,
        settings: vec!["cache_format=bf16".into()],
        context_tokens: 1024,
        max_sessions: 2,
        threads: 1,
        max_draft_tokens: 2,
        drafter: Drafter::NGRAM,
        ..Default::default()
    };
    let planned = Engine::plan(model(), &options).unwrap();
    let engine = Engine::open(model(), &options).unwrap();
    let mut info = engine.info().unwrap();
    // A plan computes nothing.
    assert_eq!(info.canary, Canary::PASSED);
    info.canary = Canary::NONE;
    // An engine's predictions come of rates that were measured when it was opened.
    assert!(info.backend_reason.contains("measured"), "{}", info.backend_reason);
    info.backend_reason = planned.backend_reason.clone();
    info.predicted_decode_tokens_per_second = planned.predicted_decode_tokens_per_second;
    info.predicted_prefill_tokens_per_second = planned.predicted_prefill_tokens_per_second;
    assert_eq!(planned, info);
    let devices = Engine::plan_devices(model(), &options).unwrap();
    assert_eq!(devices.len(), 1);
    assert_eq!(devices[0].weight_bytes, info.weight_bytes);
    assert_eq!((info.context_tokens, info.max_sessions, info.threads), (1024, 2, 1));
    assert_eq!((info.cache_format.as_str(), info.max_draft_tokens), ("bf16", 2));
    assert_eq!((info.checkpoint_drafter, info.drafter), (Drafter::MTP, Drafter::NGRAM));
    assert!(info.has_tokenizer);
    assert!(info.weight_bytes > 0 && info.cache_bytes > 0);
}

#[test]
fn devices_are_listed_the_cpu_last() {
    let devices = dsv4::list_devices().unwrap();
    let cpu = devices.last().unwrap();
    assert_eq!((cpu.backend, cpu.index, cpu.usable), (Backend::CPU, 0, true));
    assert!(!cpu.name.is_empty() && cpu.reason.is_empty());
    assert!(cpu.free_bytes > 0 && cpu.free_bytes <= cpu.total_bytes);
    let first = &devices[0];
    assert_eq!(first.backend, Backend::CUDA);
    assert_eq!(first.usable, first.reason.is_empty());
}

#[test]
fn an_engine_tells_what_it_is() {
    let metrics = open().metrics().unwrap();
    assert!(
        metrics.compressed_kv_blocks > 0 && metrics.generated_tokens == 0 && !metrics.device_lost
    );
    let stats = open().session().unwrap().stats().unwrap();
    assert!(!stats.alarms.contains(dsv4::Alarms::FROZEN_LOGITS));
    let identity = open().identity().unwrap();
    assert_eq!(identity.fingerprint.len(), 32);
    let json = Engine::inspect(model()).unwrap();
    assert!(json.starts_with('{') && json.contains(&identity.fingerprint), "{json}");
    assert_eq!(dsv4::version(), env!("CARGO_PKG_VERSION"));
    assert!(dsv4::build_info().contains(dsv4::version()));
}

#[test]
fn handles_close_in_any_order() {
    let engine = open();
    let tokens = prompt(&engine);
    let tokenizer = engine.tokenizer().unwrap();
    let mut session = engine.session().unwrap();
    drop(engine);
    session.sync(&tokens).unwrap();
    assert!(!continued(&mut session, 3).is_empty());
    drop(session);
    assert!(!tokenizer.encode("still there").unwrap().is_empty());
}

#[test]
fn several_sessions_step_in_one_pass() {
    let engine = open();
    let tokens = prompt(&engine);
    let mut alone = engine.session().unwrap();
    alone.sync(&tokens).unwrap();
    let expected = continued(&mut alone, 4);

    let mut first = engine.session().unwrap();
    let mut empty = engine.session().unwrap();
    first.sync(&tokens).unwrap();
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let results = engine.step(&mut [&mut first, &mut empty]).unwrap();
        let step = results[0].as_ref().unwrap();
        if step.token >= 0 {
            seen.push(step.token);
        }
        // A session's failure is its own.
        assert_eq!(results[1].as_ref().err().unwrap().code(), Code::INVALID_ARGUMENT);
    }
    assert_eq!(seen, expected);

    let mut stranger = open().session().unwrap();
    let error = engine.step(&mut [&mut stranger]).err().unwrap();
    assert_eq!(error.code(), Code::INVALID_ARGUMENT);
    assert!(engine.step(&mut []).map_or(true, |results| results.is_empty()));
}
