// SPDX-License-Identifier: Apache-2.0
use crate::callback::{self, Progress, ProgressFn};
use crate::codes::{Backend, Drafter, GrammarKind};
use crate::conversation::Conversation;
use crate::error::{check, check_abi, Error, Result};
use crate::grammar::{Grammar, ToolOptions};
use crate::memory;
use crate::mirror::{filled, FromC};
use crate::reports::{Device, DeviceInfo, EngineIdentity, EngineInfo, EngineMetrics};
use crate::sampling::Sampling;
use crate::session::{Session, SessionOptions, Step};
use crate::tokenizer::Tokenizer;
use dsv4_sys as sys;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// One process of a group that splits a model, one device each.
#[derive(Clone, Debug, Default)]
pub struct GroupOptions {
    /// Number of processes; 0 without a group.
    pub size: i32,
    /// 0 opens the engine, the others [`serve_group`].
    pub rank: i32,
    /// Of [`create_group_id`].
    pub id: String,
}

/// How a model is opened. 0 is the library's default, which [`Engine::info`] tells.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    pub backend: Backend,
    /// Indices of the backend's devices; empty: the best.
    pub devices: Vec<i32>,
    /// So many, without `devices`; 0: one, or what [`Backend::AUTO`] finds best.
    pub device_count: u32,
    /// Open at a time.
    pub max_sessions: i32,
    /// Longest session.
    pub context_tokens: i64,
    /// Compressed rows of all sessions together.
    pub cache_tokens: i64,
    /// Most bytes of weights on each device; routed experts beyond it lie in host memory.
    pub device_weight_bytes: i64,
    /// Most bytes of host memory for routed experts; others stay on disk.
    pub host_weight_bytes: i64,
    pub prefill_chunk_tokens: i32,
    pub threads: i32,
    /// Who drafts, unless `max_draft_tokens` is -1.
    pub drafter: Drafter,
    /// Of a session and step; 0: as usually pays, -1: none.
    pub max_draft_tokens: i32,
    pub group: GroupOptions,
    /// Rare options, as "KEY=VALUE": see `dsv4_engine_options.settings`.
    pub settings: Vec<String>,
}

/// The machine's GPUs, or an entry that says why there is none, then the CPU.
pub fn list_devices() -> Result<Vec<Device>> {
    check_abi()?;
    let found = memory::fill(16, |devices, capacity, needed, error| unsafe {
        // Safety: all pointers are valid during the call.
        sys::dsv4_list_devices(devices, capacity, needed, error)
    })?;
    // Safety: the texts are static.
    Ok(found.into_iter().map(|device: sys::dsv4_device| unsafe { Device::from_c(device) }).collect())
}

/// The id of a new group of `options.group.size` processes that split a model, to be carried to all of
/// them. It carries the options that they have in common.
pub fn create_group_id(options: &EngineOptions) -> Result<String> {
    options.with_c(None, |options| {
        memory::fill_string(1024, |id, capacity, needed, error| unsafe {
            // Safety: all pointers are valid during the call.
            sys::dsv4_group_create_id(options, id, capacity, needed, error)
        })
    })
}

/// Loads this process's part of the model and computes what the process of rank 0 asks for, until
/// that closes its engine. `progress` is told of bytes loaded, then of tokens computed; `Break` ends
/// it, and the group.
pub fn serve_group(
    path: impl AsRef<Path>,
    options: &EngineOptions,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<()> {
    let path = memory::c_path(path.as_ref())?;
    options.with_c(Some(&mut progress), |options| {
        // Safety: all pointers are valid during the call.
        check(|error| unsafe { sys::dsv4_group_serve(path.as_ptr(), options, error) })
    })
}

impl EngineOptions {
    /// Calls `use_it` with the struct of C, which borrows from `self` and `progress`.
    fn with_c<T>(
        &self,
        mut progress: Option<ProgressFn<'_>>,
        use_it: impl FnOnce(*const sys::dsv4_engine_options) -> Result<T>,
    ) -> Result<T> {
        check_abi()?;
        let settings: Vec<_> = self
            .settings
            .iter()
            .map(|setting| memory::c_string("settings", setting.as_bytes()))
            .collect::<Result<_>>()?;
        let setting_pointers: Vec<_> = settings.iter().map(|setting| setting.as_ptr()).collect();
        let group_id = memory::c_string("group.id", self.group.id.as_bytes())?;
        let group = sys::dsv4_group_options {
            size: self.group.size,
            rank: self.group.rank,
            id: group_id.as_ptr(),
            ..Default::default()
        };
        let in_group = self.group.size != 0 || !self.group.id.is_empty();
        let (progress, progress_user) = callback::progress(&mut progress);
        use_it(&sys::dsv4_engine_options {
            backend: self.backend.0,
            device_count: if self.devices.is_empty() {
                self.device_count
            } else {
                self.devices.len() as u32
            },
            devices: if self.devices.is_empty() {
                std::ptr::null()
            } else {
                memory::pointer(&self.devices)
            },
            max_sessions: self.max_sessions,
            context_tokens: self.context_tokens,
            cache_tokens: self.cache_tokens,
            device_weight_bytes: self.device_weight_bytes,
            host_weight_bytes: self.host_weight_bytes,
            prefill_chunk_tokens: self.prefill_chunk_tokens,
            threads: self.threads,
            drafter: self.drafter.0,
            max_draft_tokens: self.max_draft_tokens,
            progress,
            progress_user,
            group: if in_group { &group } else { std::ptr::null() },
            settings: memory::pointer(&setting_pointers),
            setting_count: settings.len() as u64,
            ..Default::default()
        })
    }
}

/// Closes the engine with the last clone of it, and the last session, conversation and tokenizer.
pub(crate) struct EngineHandle(NonNull<sys::dsv4_engine>);

// Safety: the library's engines may move, and all that is called on them here is concurrent.
unsafe impl Send for EngineHandle {}
unsafe impl Sync for EngineHandle {}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        // Safety: owned, and closed once.
        unsafe { sys::dsv4_engine_close(self.0.as_ptr()) }
    }
}

impl EngineHandle {
    pub(crate) fn as_ptr(&self) -> *mut sys::dsv4_engine {
        self.0.as_ptr()
    }
}

/// One model in memory. Clones are the same engine; threads may share it.
#[derive(Clone)]
pub struct Engine {
    handle: Arc<EngineHandle>,
}

impl Engine {
    /// Opens the model folder `path`.
    pub fn open(path: impl AsRef<Path>, options: &EngineOptions) -> Result<Engine> {
        Engine::open_it(path.as_ref(), options, None)
    }

    /// The same; `progress` is told of the bytes loaded, and `Break` cancels.
    pub fn open_with_progress(
        path: impl AsRef<Path>,
        options: &EngineOptions,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Engine> {
        Engine::open_it(path.as_ref(), options, Some(&mut progress))
    }

    fn open_it(
        path: &Path,
        options: &EngineOptions,
        progress: Option<ProgressFn<'_>>,
    ) -> Result<Engine> {
        let path = memory::c_path(path)?;
        let mut engine = std::ptr::null_mut();
        options.with_c(progress, |options| {
            // Safety: all pointers are valid during the call.
            check(|error| unsafe {
                sys::dsv4_engine_open(path.as_ptr(), options, &mut engine, error)
            })
        })?;
        let handle = EngineHandle(NonNull::new(engine).expect("an engine"));
        Ok(Engine { handle: Arc::new(handle) })
    }

    /// What [`Engine::open`] would say, and the exact bytes it would take, without loading weights.
    pub fn plan(path: impl AsRef<Path>, options: &EngineOptions) -> Result<EngineInfo> {
        let path = memory::c_path(path.as_ref())?;
        options.with_c(None, |options| unsafe {
            // Safety: all pointers are valid during the call, and the struct has none.
            filled(|info, error| {
                sys::dsv4_plan(path.as_ptr(), options, info, std::ptr::null_mut(), 0, error)
            })
        })
    }

    /// The planned memory of each device of that engine.
    pub fn plan_devices(
        path: impl AsRef<Path>,
        options: &EngineOptions,
    ) -> Result<Vec<DeviceInfo>> {
        let path = memory::c_path(path.as_ref())?;
        options.with_c(None, |options| {
            let found = memory::fill(16, |devices, capacity, needed, error| unsafe {
                let mut info = sys::dsv4_engine_info::default();
                // Safety: all pointers are valid during the call.
                let status =
                    sys::dsv4_plan(path.as_ptr(), options, &mut info, devices, capacity, error);
                *needed = info.device_count as usize;
                status
            })?;
            // Safety: the struct has no pointers.
            Ok(found.into_iter().map(|device| unsafe { DeviceInfo::from_c(device) }).collect())
        })
    }

    /// Describes a model folder as a JSON object, from the headers of its files.
    pub fn inspect(path: impl AsRef<Path>) -> Result<String> {
        check_abi()?;
        let path = memory::c_path(path.as_ref())?;
        memory::fill_string(4096, |json, capacity, needed, error| unsafe {
            // Safety: all pointers are valid during the call.
            sys::dsv4_inspect(path.as_ptr(), json, capacity, needed, error)
        })
    }

    pub(crate) fn handle(&self) -> Arc<EngineHandle> {
        self.handle.clone()
    }

    fn as_ptr(&self) -> *mut sys::dsv4_engine {
        self.handle.as_ptr()
    }

    /// The effective configuration.
    pub fn info(&self) -> Result<EngineInfo> {
        // Safety: the engine is open, and the struct has no pointer.
        unsafe { filled(|info, error| sys::dsv4_engine_get_info(self.as_ptr(), info, error)) }
    }

    /// Counters and gauges, from any thread while others step.
    pub fn metrics(&self) -> Result<EngineMetrics> {
        // Safety: as above.
        unsafe {
            filled(|metrics, error| sys::dsv4_engine_get_metrics(self.as_ptr(), metrics, error))
        }
    }

    /// Gives the engine's memory back and keeps its sessions, whose calls fail with `SUSPENDED`
    /// until `resume`: in host memory, or in a file of `folder`. Waits for calls that have begun.
    pub fn suspend(&self, folder: Option<&Path>) -> Result<()> {
        let folder = folder.map(memory::c_path).transpose()?;
        let folder = folder.as_ref().map_or(std::ptr::null(), |folder| folder.as_ptr());
        // Safety: the engine is open, and the path lives during the call.
        check(|error| unsafe { sys::dsv4_engine_suspend(self.as_ptr(), folder, error) })
    }

    /// Loads the weights again; sessions continue with the same bits. An engine that fails to resume
    /// stays suspended with nothing lost.
    pub fn resume(&self) -> Result<()> {
        self.resume_it(None)
    }

    pub fn resume_with_progress(
        &self,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<()> {
        self.resume_it(Some(&mut progress))
    }

    fn resume_it(&self, mut report: Option<ProgressFn<'_>>) -> Result<()> {
        let (progress, user) = callback::progress(&mut report);
        // Safety: the engine is open, and `report` lives during the call.
        check(|error| unsafe { sys::dsv4_engine_resume(self.as_ptr(), progress, user, error) })
    }

    /// Device, weight format and the checkpoint's fingerprint.
    pub fn identity(&self) -> Result<EngineIdentity> {
        let raw = self.as_ptr();
        // Safety: the engine is open, and its texts live as long.
        unsafe { filled(|identity, error| sys::dsv4_engine_get_identity(raw, identity, error)) }
    }

    /// The values that 0 stands for in a [`Sampling`] of this model.
    pub fn sampling(&self) -> Result<Sampling> {
        let mut sampling = sys::dsv4_sampling::default();
        // Safety: the engine is open.
        check(|error| unsafe { sys::dsv4_sampling_init(self.as_ptr(), &mut sampling, error) })?;
        Ok(Sampling::from_c(&sampling))
    }

    /// The engine's tokenizer; NOT_FOUND when the model folder has none.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        let mut tokenizer = std::ptr::null();
        // Safety: the engine is open.
        check(|error| unsafe {
            sys::dsv4_engine_get_tokenizer(self.as_ptr(), &mut tokenizer, error)
        })?;
        Ok(Tokenizer::of_engine(NonNull::new(tokenizer as *mut _).expect("a tokenizer"), self))
    }

    /// Compiles a grammar for sessions of this engine.
    pub fn grammar(&self, kind: GrammarKind, source: &str) -> Result<Grammar> {
        // Safety: the engine is open, as in all that follows.
        unsafe { Grammar::open(self.as_ptr(), kind, source) }
    }

    /// Turns that call tools, which are a JSON array in OpenAI's form.
    pub fn tool_grammar(&self, tools: &str, options: &ToolOptions) -> Result<Grammar> {
        unsafe { Grammar::open_answer(self.as_ptr(), Some(tools), None, options) }
    }

    /// Turns that are JSON of a schema or call tools. Without tools: JSON of the schema.
    pub fn answer_grammar(
        &self,
        tools: Option<&str>,
        schema: &str,
        options: &ToolOptions,
    ) -> Result<Grammar> {
        unsafe { Grammar::open_answer(self.as_ptr(), tools, Some(schema), options) }
    }

    /// An empty session with the model's own sampling.
    pub fn session(&self) -> Result<Session> {
        self.session_with(&SessionOptions::default())
    }

    pub fn session_with(&self, options: &SessionOptions) -> Result<Session> {
        let mut session = std::ptr::null_mut();
        options.with_c(|options| {
            // Safety: the engine is open, and the options are valid during the call.
            check(|error| unsafe {
                sys::dsv4_session_open(self.as_ptr(), options, &mut session, error)
            })
        })?;
        Ok(Session::own(session, self.handle()))
    }

    /// A conversation without messages, with the model's own sampling.
    pub fn conversation(&self) -> Result<Conversation> {
        Ok(Conversation::on(self.session()?))
    }

    pub fn conversation_with(&self, options: &SessionOptions) -> Result<Conversation> {
        Ok(Conversation::on(self.session_with(options)?))
    }

    /// Steps several sessions of this engine in one pass, for programs with one thread. Where a
    /// prompt is still pending the token is -1: call again. A session's failure is its own; the outer
    /// one is of the call itself.
    pub fn step(&self, sessions: &mut [&mut Session]) -> Result<Vec<Result<Step>>> {
        let pointers: Vec<_> = sessions.iter_mut().map(|session| session.as_ptr()).collect();
        self.pass(&pointers, None, &[])
    }

    /// The same of conversations: what it decides is for the events of each.
    pub fn step_conversations(
        &self,
        conversations: &mut [&mut Conversation],
    ) -> Result<Vec<Result<Step>>> {
        let mut pointers = Vec::new();
        let mut users = Vec::new();
        let mut append = None;
        let known: Vec<_> = conversations.iter().map(|c| c.untaken()).collect();
        for conversation in conversations.iter_mut() {
            let (pointer, function, user) = conversation.to_step();
            pointers.push(pointer);
            users.push(user);
            append = function;
        }
        // The events are borrowed with their conversations.
        let outcome = self.pass(&pointers, append, &users)?;
        for ((conversation, step), known) in conversations.iter_mut().zip(&outcome).zip(known) {
            if let Ok(step) = step {
                conversation.took(known, step.finish);
            }
        }
        Ok(outcome)
    }

    fn pass(
        &self,
        pointers: &[*mut sys::dsv4_session],
        callback: sys::dsv4_parser_event_fn,
        users: &[*mut c_void],
    ) -> Result<Vec<Result<Step>>> {
        let count = pointers.len();
        let mut results = vec![sys::dsv4_step_result::default(); count];
        let result_pointers: Vec<*mut sys::dsv4_step_result> =
            results.iter_mut().map(|result| result as *mut _).collect();
        let mut statuses = vec![sys::DSV4_OK; count];
        let mut errors = vec![std::ptr::null_mut(); count];
        let mut error = std::ptr::null_mut();
        // Safety: valid entries, and pointers that live during the call.
        let status = unsafe {
            sys::dsv4_engine_step(
                self.as_ptr(),
                memory::pointer(pointers),
                count,
                callback,
                memory::pointer(users),
                memory::pointer(&result_pointers),
                statuses.as_mut_ptr(),
                errors.as_mut_ptr(),
                &mut error,
            )
        };
        let outcome = if status == sys::DSV4_OK {
            // Safety: the texts live until the next call on their sessions; the errors are ours.
            Ok((0..count)
                .map(|i| match statuses[i] {
                    sys::DSV4_OK => Ok(unsafe { Step::from_c(results[i]) }),
                    status => Err(unsafe { Error::take(status, errors[i]) }),
                })
                .collect())
        } else {
            // Safety: as above.
            Err(unsafe { Error::take(status, error) })
        };
        callback::resume_panic();
        outcome
    }
}
