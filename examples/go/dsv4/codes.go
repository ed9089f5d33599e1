// SPDX-License-Identifier: Apache-2.0

package dsv4

// #include <dsv4/dsv4.h>
import "C"

// Code is what kind of failure an Error is: errors.Is(err, dsv4.NotFound).
type Code int32

const (
	OK                Code = C.DSV4_OK
	InvalidArgument   Code = C.DSV4_ERR_INVALID_ARGUMENT
	NotFound          Code = C.DSV4_ERR_NOT_FOUND
	IO                Code = C.DSV4_ERR_IO
	Corrupt           Code = C.DSV4_ERR_CORRUPT
	Unsupported       Code = C.DSV4_ERR_UNSUPPORTED
	OutOfHostMemory   Code = C.DSV4_ERR_OUT_OF_HOST_MEMORY
	OutOfDeviceMemory Code = C.DSV4_ERR_OUT_OF_DEVICE_MEMORY
	ContextFull       Code = C.DSV4_ERR_CONTEXT_FULL
	OutOfBlocks       Code = C.DSV4_ERR_OUT_OF_BLOCKS
	Cancelled         Code = C.DSV4_ERR_CANCELLED
	Busy              Code = C.DSV4_ERR_BUSY
	DeviceLost        Code = C.DSV4_ERR_DEVICE_LOST
	VersionMismatch   Code = C.DSV4_ERR_VERSION_MISMATCH
	Internal          Code = C.DSV4_ERR_INTERNAL
	Suspended         Code = C.DSV4_ERR_SUSPENDED
)

// Error returns the code's name, as in "NOT_FOUND".
func (c Code) Error() string { return C.GoString(C.dsv4_status_get_name(C.dsv4_status(c))) }

// Backend is what computes.
type Backend int32

const (
	BackendAuto      Backend = C.DSV4_BACKEND_AUTO
	BackendCPU       Backend = C.DSV4_BACKEND_CPU
	BackendReference Backend = C.DSV4_BACKEND_REFERENCE
	BackendCUDA      Backend = C.DSV4_BACKEND_CUDA
)

// Drafter is what drafts tokens for speculative decoding.
type Drafter int32

const (
	DrafterAuto   Drafter = C.DSV4_DRAFTER_AUTO // the model's own
	DrafterNone   Drafter = C.DSV4_DRAFTER_NONE
	DrafterMTP    Drafter = C.DSV4_DRAFTER_MTP
	DrafterDSpark Drafter = C.DSV4_DRAFTER_DSPARK
	DrafterNgram  Drafter = C.DSV4_DRAFTER_NGRAM
)

// ProgressPhase is what a Progress is of.
type ProgressPhase int32

const (
	ProgressLoad    ProgressPhase = C.DSV4_PROGRESS_LOAD
	ProgressPrefill ProgressPhase = C.DSV4_PROGRESS_PREFILL
	ProgressSave    ProgressPhase = C.DSV4_PROGRESS_SAVE
	ProgressRestore ProgressPhase = C.DSV4_PROGRESS_RESTORE
	ProgressServe   ProgressPhase = C.DSV4_PROGRESS_SERVE
)

// ProgressUnit is what a Progress counts.
type ProgressUnit int32

const (
	UnitBytes  ProgressUnit = C.DSV4_UNIT_BYTES
	UnitTokens ProgressUnit = C.DSV4_UNIT_TOKENS
)

// LogLevel is how much a line of the log matters.
type LogLevel int32

const (
	LogError   LogLevel = C.DSV4_LOG_ERROR
	LogWarning LogLevel = C.DSV4_LOG_WARNING
	LogInfo    LogLevel = C.DSV4_LOG_INFO
)

// Role is who speaks.
type Role int32

const (
	RoleSystem         Role = C.DSV4_ROLE_SYSTEM
	RoleUser           Role = C.DSV4_ROLE_USER
	RoleAssistant      Role = C.DSV4_ROLE_ASSISTANT
	RoleTool           Role = C.DSV4_ROLE_TOOL
	RoleLatestReminder Role = C.DSV4_ROLE_LATEST_REMINDER
	RoleDeveloper      Role = C.DSV4_ROLE_DEVELOPER
)

// ThinkingMode is whether the model reasons before it answers.
type ThinkingMode int32

const (
	ThinkingOff  ThinkingMode = C.DSV4_THINKING_OFF
	ThinkingHigh ThinkingMode = C.DSV4_THINKING_HIGH
	ThinkingMax  ThinkingMode = C.DSV4_THINKING_MAX
	ThinkingLow  ThinkingMode = C.DSV4_THINKING_LOW // reasons, with no word about effort in the prompt
)

// ChatEncoder is which of the published encoders writes the prompt; ChatEncoderAuto is the one that
// the model's folder shows.
type ChatEncoder int32

const (
	ChatEncoderAuto    ChatEncoder = C.DSV4_CHAT_ENCODER_AUTO
	ChatEncoderPreview ChatEncoder = C.DSV4_CHAT_ENCODER_PREVIEW
	ChatEncoder0731    ChatEncoder = C.DSV4_CHAT_ENCODER_0731
)

// EventType is what a piece of a completion is.
type EventType int32

const (
	EventReasoning         EventType = C.DSV4_PARSER_REASONING
	EventText              EventType = C.DSV4_PARSER_TEXT
	EventToolCallStart     EventType = C.DSV4_PARSER_TOOL_CALL_START
	EventToolCallArguments EventType = C.DSV4_PARSER_TOOL_CALL_ARGUMENTS
	EventToolCallEnd       EventType = C.DSV4_PARSER_TOOL_CALL_END
	EventMalformed         EventType = C.DSV4_PARSER_MALFORMED
	EventEnd               EventType = C.DSV4_PARSER_END
)

// GrammarKind is what a grammar's source is.
type GrammarKind int32

const (
	GrammarSchema GrammarKind = C.DSV4_GRAMMAR_SCHEMA // JSON texts that are valid under a JSON Schema
	GrammarRegex  GrammarKind = C.DSV4_GRAMMAR_REGEX  // texts that a regular expression matches as wholes
	GrammarEBNF   GrammarKind = C.DSV4_GRAMMAR_EBNF   // texts of the rule "root"
)

// ToolChoice is which turns a grammar of tools allows.
type ToolChoice int32

const (
	ToolChoiceAuto     ToolChoice = C.DSV4_TOOL_CHOICE_AUTO // text, which calls may end
	ToolChoiceNone     ToolChoice = C.DSV4_TOOL_CHOICE_NONE
	ToolChoiceRequired ToolChoice = C.DSV4_TOOL_CHOICE_REQUIRED
)

// Finish is why a turn ended; FinishNone while it continues.
type Finish int32

const (
	FinishNone        Finish = C.DSV4_FINISH_NONE
	FinishStop        Finish = C.DSV4_FINISH_STOP
	FinishLength      Finish = C.DSV4_FINISH_LENGTH
	FinishContextFull Finish = C.DSV4_FINISH_CONTEXT_FULL
	FinishToolCall    Finish = C.DSV4_FINISH_TOOL_CALL // of conversations
	FinishCancelled   Finish = C.DSV4_FINISH_CANCELLED // of steps that failed, which are an Error here
	FinishError       Finish = C.DSV4_FINISH_ERROR
)

// ReuseLimit is why a sync reused no more tokens.
type ReuseLimit int32

const (
	ReuseAll             ReuseLimit = C.DSV4_REUSE_ALL
	ReuseLastToken       ReuseLimit = C.DSV4_REUSE_LAST_TOKEN
	ReuseDifferent       ReuseLimit = C.DSV4_REUSE_DIFFERENT
	ReuseNoRestorePoint  ReuseLimit = C.DSV4_REUSE_NO_RESTORE_POINT
	ReuseNotCached       ReuseLimit = C.DSV4_REUSE_NOT_CACHED
	ReuseIncompleteBlock ReuseLimit = C.DSV4_REUSE_INCOMPLETE_BLOCK
)

// Canary is the result of the canary check: a prompt with recorded logits in the model folder.
type Canary int32

const (
	CanaryNone   Canary = C.DSV4_CANARY_NONE
	CanaryPassed Canary = C.DSV4_CANARY_PASSED
	CanaryFailed Canary = C.DSV4_CANARY_FAILED
	CanaryNotRun Canary = C.DSV4_CANARY_NOT_RUN
)

// Alarms is what a healthy model does not do: bits, one for each alarm.
type Alarms int32

const (
	AlarmNonFiniteLogits Alarms = C.DSV4_ALARM_NONFINITE_LOGITS
	AlarmFrozenLogits    Alarms = C.DSV4_ALARM_FROZEN_LOGITS
	AlarmTokenRun        Alarms = C.DSV4_ALARM_TOKEN_RUN
	AlarmBosRun          Alarms = C.DSV4_ALARM_BOS_RUN
	AlarmFewAccepted     Alarms = C.DSV4_ALARM_FEW_ACCEPTED
	AlarmCanary          Alarms = C.DSV4_ALARM_CANARY // the engine's
)
