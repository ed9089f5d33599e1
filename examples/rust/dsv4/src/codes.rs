// SPDX-License-Identifier: Apache-2.0
//! The numbers of the C interface as types of their own. Newtypes and no enums: a library newer than
//! this crate may return values that have no name here.

use crate::mirror::FromC;
use dsv4_sys as sys;
use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident { $($(#[$constant_doc:meta])* $constant:ident = $value:ident,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub i32);

        impl $name {
            $($(#[$constant_doc])* pub const $constant: $name = $name(sys::$value);)*
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $($name::$constant => f.write_str(stringify!($constant)),)*
                    $name(number) => write!(f, "{}({})", stringify!($name), number),
                }
            }
        }

        impl FromC<i32> for $name {
            unsafe fn from_c(number: i32) -> $name {
                $name(number)
            }
        }
    )*};
}

codes! {
    /// What kind of failure an [`Error`](crate::Error) is.
    Code {
        OK = DSV4_OK,
        INVALID_ARGUMENT = DSV4_ERR_INVALID_ARGUMENT,
        NOT_FOUND = DSV4_ERR_NOT_FOUND,
        IO = DSV4_ERR_IO,
        CORRUPT = DSV4_ERR_CORRUPT,
        UNSUPPORTED = DSV4_ERR_UNSUPPORTED,
        OUT_OF_HOST_MEMORY = DSV4_ERR_OUT_OF_HOST_MEMORY,
        OUT_OF_DEVICE_MEMORY = DSV4_ERR_OUT_OF_DEVICE_MEMORY,
        CONTEXT_FULL = DSV4_ERR_CONTEXT_FULL,
        OUT_OF_BLOCKS = DSV4_ERR_OUT_OF_BLOCKS,
        CANCELLED = DSV4_ERR_CANCELLED,
        BUSY = DSV4_ERR_BUSY,
        DEVICE_LOST = DSV4_ERR_DEVICE_LOST,
        VERSION_MISMATCH = DSV4_ERR_VERSION_MISMATCH,
        INTERNAL = DSV4_ERR_INTERNAL,
        SUSPENDED = DSV4_ERR_SUSPENDED,
    }

    /// What computes.
    Backend {
        AUTO = DSV4_BACKEND_AUTO,
        CPU = DSV4_BACKEND_CPU,
        REFERENCE = DSV4_BACKEND_REFERENCE,
        CUDA = DSV4_BACKEND_CUDA,
    }

    /// What drafts tokens for speculative decoding; `AUTO` is the checkpoint's drafter.
    Drafter {
        AUTO = DSV4_DRAFTER_AUTO,
        NONE = DSV4_DRAFTER_NONE,
        MTP = DSV4_DRAFTER_MTP,
        DSPARK = DSV4_DRAFTER_DSPARK,
        NGRAM = DSV4_DRAFTER_NGRAM,
    }

    /// What a [`Progress`](crate::Progress) is of.
    ProgressPhase {
        LOAD = DSV4_PROGRESS_LOAD,
        PREFILL = DSV4_PROGRESS_PREFILL,
        SAVE = DSV4_PROGRESS_SAVE,
        RESTORE = DSV4_PROGRESS_RESTORE,
        SERVE = DSV4_PROGRESS_SERVE,
    }

    /// What a [`Progress`](crate::Progress) counts.
    ProgressUnit {
        BYTES = DSV4_UNIT_BYTES,
        TOKENS = DSV4_UNIT_TOKENS,
    }

    /// How much a line of the log matters.
    LogLevel {
        ERROR = DSV4_LOG_ERROR,
        WARNING = DSV4_LOG_WARNING,
        INFO = DSV4_LOG_INFO,
    }

    /// Who speaks.
    Role {
        SYSTEM = DSV4_ROLE_SYSTEM,
        USER = DSV4_ROLE_USER,
        ASSISTANT = DSV4_ROLE_ASSISTANT,
        TOOL = DSV4_ROLE_TOOL,
        LATEST_REMINDER = DSV4_ROLE_LATEST_REMINDER,
        DEVELOPER = DSV4_ROLE_DEVELOPER,
    }

    /// Whether the model reasons before it answers.
    ThinkingMode {
        OFF = DSV4_THINKING_OFF,
        HIGH = DSV4_THINKING_HIGH,
        MAX = DSV4_THINKING_MAX,
        /// Reasons, with no word about effort in the prompt.
        LOW = DSV4_THINKING_LOW,
    }

    /// Which of the published encoders writes the prompt; AUTO is the one that the model's folder
    /// shows.
    ChatEncoder {
        AUTO = DSV4_CHAT_ENCODER_AUTO,
        PREVIEW = DSV4_CHAT_ENCODER_PREVIEW,
        V0731 = DSV4_CHAT_ENCODER_0731,
    }

    /// What a grammar's source is.
    GrammarKind {
        /// JSON texts that are valid under a JSON Schema.
        SCHEMA = DSV4_GRAMMAR_SCHEMA,
        /// Texts that a regular expression matches as wholes.
        REGEX = DSV4_GRAMMAR_REGEX,
        /// Texts of the rule "root".
        EBNF = DSV4_GRAMMAR_EBNF,
    }

    /// Which turns a grammar of tools allows.
    ToolChoice {
        /// Text, which calls may end.
        AUTO = DSV4_TOOL_CHOICE_AUTO,
        NONE = DSV4_TOOL_CHOICE_NONE,
        REQUIRED = DSV4_TOOL_CHOICE_REQUIRED,
    }

    /// Why a turn ended; NONE while it continues.
    Finish {
        NONE = DSV4_FINISH_NONE,
        STOP = DSV4_FINISH_STOP,
        LENGTH = DSV4_FINISH_LENGTH,
        CONTEXT_FULL = DSV4_FINISH_CONTEXT_FULL,
        /// As STOP, and the turn calls tools: of conversations.
        TOOL_CALL = DSV4_FINISH_TOOL_CALL,
        /// Of steps that failed, which are an [`Error`](crate::Error) here.
        CANCELLED = DSV4_FINISH_CANCELLED,
        ERROR = DSV4_FINISH_ERROR,
    }

    /// Why a sync reused no more tokens.
    ReuseLimit {
        ALL = DSV4_REUSE_ALL,
        LAST_TOKEN = DSV4_REUSE_LAST_TOKEN,
        DIFFERENT = DSV4_REUSE_DIFFERENT,
        NO_RESTORE_POINT = DSV4_REUSE_NO_RESTORE_POINT,
        NOT_CACHED = DSV4_REUSE_NOT_CACHED,
        INCOMPLETE_BLOCK = DSV4_REUSE_INCOMPLETE_BLOCK,
    }

    /// The result of the canary check: a prompt with recorded logits in the model folder.
    Canary {
        NONE = DSV4_CANARY_NONE,
        PASSED = DSV4_CANARY_PASSED,
        FAILED = DSV4_CANARY_FAILED,
        NOT_RUN = DSV4_CANARY_NOT_RUN,
    }

    /// What a healthy model does not do: bits, one for each alarm.
    Alarms {
        NONFINITE_LOGITS = DSV4_ALARM_NONFINITE_LOGITS,
        FROZEN_LOGITS = DSV4_ALARM_FROZEN_LOGITS,
        TOKEN_RUN = DSV4_ALARM_TOKEN_RUN,
        BOS_RUN = DSV4_ALARM_BOS_RUN,
        FEW_ACCEPTED = DSV4_ALARM_FEW_ACCEPTED,
        CANARY = DSV4_ALARM_CANARY,
    }
}

impl Alarms {
    /// Whether all of `alarms` are raised.
    pub fn contains(self, alarms: Alarms) -> bool {
        self.0 & alarms.0 == alarms.0
    }
}
