/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine: the weights of one model on its devices, the KV block pool and the workspaces. Its
 * settings do not change after it is opened. Threads may share it.
 */
#ifndef DSV4_ENGINE_H_
#define DSV4_ENGINE_H_

#include <dsv4/tokenizer.h>

DSV4_BEGIN_DECLS

typedef struct dsv4_engine dsv4_engine;

typedef int32_t dsv4_backend;
/* What computes a token fastest, by prediction: one GPU, several GPUs of one kind, or the CPU.
 * - GPUs have compute capability 12.x and pass the known-answer test. Experts that a GPU has no
 * room for lie in host memory, then on disk.
 * - More GPUs are chosen only if they are at least 10 % faster, and only GPUs of which other
 *   processes use less than half. The CPU is chosen only if no GPU has room for all weights.
 * - Limits of the options hold for every choice. The CPU is none with the setting tuning_dir, which
 *   only GPUs have.
 * dsv4_engine_info.backend_reason and the log say what was chosen, and why each alternative was
 * not. */
#define DSV4_BACKEND_AUTO ((dsv4_backend)0)
#define DSV4_BACKEND_CPU ((dsv4_backend)1)       /* SIMD on the processor */
#define DSV4_BACKEND_REFERENCE ((dsv4_backend)2) /* scalar, slow; for verification */
/* A GPU. UNSUPPORTED if there is none, or if it fails the known-answer test. The first open on a
 * device in a process runs this test: it compares every operator with recorded outputs (about a
 * second). */
#define DSV4_BACKEND_CUDA ((dsv4_backend)3)

/* What drafts tokens for speculative decoding (see dsv4_sampling.draft_tokens).
 * - AUTO: the drafter in the checkpoint, recognized by its tensors.
 * - MTP: the multi-token prediction block; drafts one token after another.
 * - DSPARK: chained stages that draft a block of tokens in one pass.
 * - NGRAM: copies what followed an earlier occurrence of the last tokens; needs no weights. */
typedef int32_t dsv4_drafter;
#define DSV4_DRAFTER_AUTO ((dsv4_drafter)0)
#define DSV4_DRAFTER_NONE ((dsv4_drafter)1)
#define DSV4_DRAFTER_MTP ((dsv4_drafter)2)
#define DSV4_DRAFTER_DSPARK ((dsv4_drafter)3)
#define DSV4_DRAFTER_NGRAM ((dsv4_drafter)4)

typedef int32_t dsv4_progress_phase;
#define DSV4_PROGRESS_LOAD ((dsv4_progress_phase)1)
#define DSV4_PROGRESS_PREFILL ((dsv4_progress_phase)2)
#define DSV4_PROGRESS_SAVE ((dsv4_progress_phase)3)
#define DSV4_PROGRESS_RESTORE ((dsv4_progress_phase)4)
#define DSV4_PROGRESS_SERVE ((dsv4_progress_phase)5) /* done: tokens computed; total: 0 */

typedef int32_t dsv4_progress_unit;
#define DSV4_UNIT_BYTES ((dsv4_progress_unit)1)
#define DSV4_UNIT_TOKENS ((dsv4_progress_unit)2)

/* Reports progress, about 20 times a second at most and once at the end. Runs on the thread of the
 * call that it was given to. A non-zero return value cancels that call (DSV4_ERR_CANCELLED). The
 * callback must not use the same session or engine. */
typedef int32_t (*dsv4_progress_fn)(void* user, dsv4_progress_phase phase, uint64_t done,
                                    uint64_t total, dsv4_progress_unit unit);

/* Result of the canary check. The canary (dsv4_canary.json in the model folder) is a prompt with
 * recorded logits. dsv4_engine_open computes it after loading the weights and compares the logits
 * (docs/verify-device.md). */
typedef int32_t dsv4_canary;
#define DSV4_CANARY_NONE ((dsv4_canary)0)   /* the folder has none, or it was skipped */
#define DSV4_CANARY_PASSED ((dsv4_canary)1) /* every logit is within the file's tolerance */
/* A logit differs by more than the tolerance. The engine opens, but its sessions have
 * DSV4_ALARM_CANARY, dsv4_engine_metrics.alarm_canary is 1, and a warning in the log names the
 * logit. */
#define DSV4_CANARY_FAILED ((dsv4_canary)2)
/* Not computed: the numerics are not published, the cache format is fp8_per_tensor, or the prompt
 * is longer than context_tokens or cache_tokens. */
#define DSV4_CANARY_NOT_RUN ((dsv4_canary)3)

/* A device that an engine can use: see dsv4_list_devices. The strings are static: they stay valid
 * until the library is unloaded. */
typedef struct dsv4_device {
  uint32_t struct_size;
  dsv4_backend backend; /* CUDA for a GPU, or CPU */
  int32_t index;  /* for dsv4_engine_options.devices; -1: `reason` says why no GPU is listed */
  int32_t usable; /* 1 if an engine can be opened on it with this backend; otherwise 0 */
  int32_t compute_capability; /* of a GPU: 10 * major + minor, as in 120 for 12.0; of a CPU: 0 */
  int32_t integrated; /* 1: the GPU has no memory of its own, so that the sizes are the system's */
  uint64_t total_bytes; /* of its memory; 0 if unknown */
  uint64_t free_bytes;  /* free for new allocations by any process; 0 if unknown or not usable */
  const char* name;     /* the vendor's, as in "NVIDIA GeForce RTX 5090"; "" for index -1 */
  /* Why it is not usable: no driver, a compute capability that this build has no kernels for, a
   * compute mode, or a known-answer test that failed in this process. "" if it is usable. */
  const char* reason;
} dsv4_device;
#define DSV4_DEVICE_INIT \
  { sizeof(dsv4_device), 0, 0, 0, 0, 0, 0, 0, NULL, NULL }

/* Lists the devices of this machine: GPUs in the order of CUDA, or, if CUDA shows none, one entry
 * with index -1; then the CPU, as one entry. DSV4_BACKEND_AUTO chooses only usable GPUs of compute
 * capability 12.x.
 * - devices: [capacity] structs, one after another, whose struct_size is set and the same in all.
 *   May be NULL if capacity is 0.
 * - Fills up to `capacity` structs, and sets *needed to the number of devices.
 * - Runs no test and takes no memory on a GPU, if NVIDIA's management library
 *   (libnvidia-ml.so.1) is there. Otherwise CUDA creates its context on every GPU.
 * - Threads: any. Cost: milliseconds; the first call loads the driver.
 * Errors: INVALID_ARGUMENT. */
DSV4_API dsv4_status dsv4_list_devices(dsv4_device* devices, size_t capacity, size_t* needed,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* One process of a group that splits a model: see dsv4_group_create_id. */
typedef struct dsv4_group_options {
  uint32_t struct_size;
  int32_t size;   /* number of processes, 2 to 8 */
  const char* id; /* of dsv4_group_create_id, which ignores it */
  int32_t rank;   /* 0: this process opens the engine; 1 to size - 1: it serves */
  int32_t reserved;
} dsv4_group_options;
#define DSV4_GROUP_OPTIONS_INIT \
  { sizeof(dsv4_group_options), 0, NULL, 0, 0 }

/* Options of dsv4_engine_open. 0 in a field selects its default. */
typedef struct dsv4_engine_options {
  uint32_t struct_size;
  dsv4_backend backend;
  /* Number of devices that split the model's matrices (tensor parallelism), at most 8; 0 = one, or
   * what AUTO finds best. Results are bit for bit the same for any count, and a session saved with
   * one count loads with any other. The count must divide the model's o_groups.
   * - CPU: devices are parts of the processor and share its threads. Their indices must be 0 to
   *   device_count - 1. AUTO uses one if it chooses the CPU.
   * - CUDA: without `devices`, the best GPUs of one kind: those with most free memory, then the
   *   fastest memory. UNSUPPORTED if no kind has so many. A group's process takes GPU 0.
   * - CUDA: all GPUs must have the same architecture and room for their part of the plan. They
   *   exchange data by peer access or, without it, through pinned host memory; long slices also by
   *   NCCL (libnccl.so.2, loaded if it is there), where it is faster. */
  uint32_t device_count;
  int32_t max_sessions;   /* sessions open at the same time; 0 = 4 */
  const int32_t* devices; /* [device_count] device indices; NULL: the best devices */
  /* Longest session; 0 = max_position_embeddings of the model, the limit. If the memory has no room
   * for the cache of so many tokens, 0 is the largest multiple of 4096 that fits (cache_tokens =
   * 0), and dsv4_engine_info.backend_reason says so. */
  int64_t context_tokens;
  int64_t cache_tokens; /* tokens of compressed cache for all sessions; 0 = context_tokens */
  /* Limit of the bytes of weights on each device. Routed experts beyond it are stored in pinned
   * host memory, from which the device's kernels read them.
   * - 0, and more than fits: as much as fits the free memory after the cache and the workspaces,
   *   less a reserve: 1 GiB or 1/16 of it, whichever is less; 2 GiB or 1/8 on Windows and WSL2,
   *   which take memory back when other programs ask for it; on an integrated GPU 8 GiB or 8 % of
   *   the available memory, whichever is more, but at most a quarter. A group of processes takes
   * the limit as it is, and 0 as no limit.
   * - Results are bit for bit the same with any limit.
   * - The least value holds all weights other than routed experts, one expert of each layer, and
   *   buffers for moving experts. Steps of long prompts use up to an eighth of the rest as buffers
   *   for experts from the host.
   * - On an integrated GPU, which shares the host's memory, experts beyond the limit stay on disk,
   *   as with host_weight_bytes. Buffers of these reads count towards the limit.
   * - The CPU keeps it by using no device memory. So does AUTO if the limit is below the least
   * value. Errors: INVALID_ARGUMENT below the least value, which the message names;
   * OUT_OF_HOST_MEMORY if the machine's free memory has no room even for reads from disk. */
  int64_t device_weight_bytes;
  /* Limit of the bytes of host memory for routed experts, all devices together; 0, and more than
   * that: 7/8 of the free memory; with a GPU on Windows and WSL2 also at most 7/16 of all memory,
   * because more cannot be pinned there. Results are bit for bit the same with any limit.
   * - A driver may refuse to pin that much. The engine is then planned anew with what was granted,
   *   and backend_reason says so. In a group of processes it is an error.
   * - CUDA: experts beyond it stay in the checkpoint's files, which must not change. A step reads
   *   the experts that it needs. If a read fails, the step fails with IO or CORRUPT and can be
   *   repeated.
   * - CPU: weights are mapped files. Experts within the limit are read when the engine opens, and
   *   locked in memory up to RLIMIT_MEMLOCK. The others are read when a step needs them.
   * - CPU with 0: all weights are read when the engine opens, and none is locked. If the machine's
   *   free memory cannot hold them, the free memory is the limit, and the log has a warning.
   * - On an integrated GPU: limit of the experts in its memory, which is the host's. Like
   *   device_weight_bytes without the other weights; the lower limit counts.
   * Errors: INVALID_ARGUMENT if it leaves no room for the buffers of reads; the message names the
   * least value. */
  int64_t host_weight_bytes;
  /* Prompt tokens in one step, at most context_tokens; 0 = 256 on the CPU and 2048 on CUDA, or 4096
   * if not all experts are in device memory: each step of a prompt then reads nearly all of the
   * others, and with larger chunks more tokens share each read. If the device has no room for the
   * buffers of so many, 0 is half of that, and so on down to 256. */
  int32_t prefill_chunk_tokens;
  /* CPU threads, including the calling one; 0 = one per core. */
  int32_t threads;
  /* The drafter, unless max_draft_tokens is -1. NOT_FOUND if the checkpoint does not have it, or,
   * for AUTO with max_draft_tokens above 0, if it has none. */
  dsv4_drafter drafter;
  /* Most drafts of a session and step, 1 to 7, or -1 for none. 0 = 1 with an MTP block, a block
   * with a DSpark drafter, 3 with n-grams, and none if the checkpoint has no drafter and none is
   * named. Sessions draft unless their dsv4_sampling.draft_tokens asks for fewer or none, and stop
   * by themselves while drafts do not pay. Drafts change no token. A DSpark drafter lowers it to
   * its block size (see dsv4_engine_info). */
  int32_t max_draft_tokens;
  dsv4_progress_fn progress; /* may be NULL */
  void* progress_user;
  const dsv4_group_options* group; /* NULL: no group of processes */
  /* [setting_count] rare options, as "KEY=VALUE". Most programs need none. An unknown key or value
   * is INVALID_ARGUMENT, and the message lists what is known. Keys:
   * - cache_format: how the KV cache stores a row; a saved session loads only into the format that
   *   it was saved with. UNSUPPORTED for a format that the numerics cannot use.
   *     packed          584 bytes: fp8 with scales, and bf16. The default of published numerics
   *     bf16            1024 bytes, the same results as packed
   *     fp8_per_tensor  512 bytes. Changes results: rows, including their RoPE part, and queries
   *                     are rounded to e4m3 with the fixed scale 1; values beyond 448 become 448
   *     f32             2048 bytes. The default, and only for, fp32 and exact numerics
   * - canary: "off" skips the check of the model folder's canary, which costs a prefill of its
   *   prompt.
   * - drafter_model: a folder or GGUF file whose drafter takes the place of the model's own: a
   *   checkpoint with mtp.* tensors, a drafter's file of llama.cpp (MTP, or DSpark as dflash) or of
   *   ds4. Formats of model and drafter may differ. A saved session loads only with the same
   *   drafter. Errors: those of opening it; INVALID_ARGUMENT if it was made for another model.
   * - expert_profile: a file that counts how often each routed expert was chosen. The experts with
   *   the highest counts start in the fastest memory. Results do not depend on it. The file need
   *   not exist. The engine replaces it, with its own counts added, when it is closed or suspended
   *   and every five minutes, on a thread of its own; if it cannot, it logs a warning. In a group,
   *   the process of rank 0 sends the counts to the others. Errors, which leave the file unchanged:
   *   CORRUPT for a damaged file; VERSION_MISMATCH for another format or another model's file;
   *   INVALID_ARGUMENT if all experts are in the same kind of memory, and for a rank other than 0.
   * - expert_profiles: a folder that has such a file for each checkpoint, named by its fingerprint.
   *   The engine uses the file if its experts are in several kinds of memory, and starts a new one
   * if there is none or a damaged one (with a warning in the log). Has no effect with
   * expert_profile.
   * - numerics: "published" rounds to bf16 as the published code; "fp32" and "exact" are for
   *   verification, with the reference backend only.
   * - step_limit_seconds: how long a step waits for one call of the GPU's driver; 0 = without end.
   *   Default: 120. After some failures of a GPU such a call never returns. The step then ends with
   *   DEVICE_LOST, as do all later calls that compute, and dsv4_engine_resume. The library leaves
   *   behind the thread of the step, which never continues, and keeps the engine's memory until the
   *   process ends: only another process can use the GPU again. Closing sessions and the engine
   *   still returns. The known-answer test has the default limit. CUDA and AUTO only (otherwise
   *   UNSUPPORTED).
   * - tuning_dir: a folder of tuning files written by dsv4-tune, which replace the built-in ones
   *   for the same kernels. Changes speed, never results. CUDA backend only (otherwise
   *   UNSUPPORTED). NOT_FOUND if it does not exist, CORRUPT for an invalid file. */
  const char* const* settings;
  uint64_t setting_count;
} dsv4_engine_options;
#define DSV4_ENGINE_OPTIONS_INIT \
  { sizeof(dsv4_engine_options), 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0 }

/* The settings in effect and the planned memory. Numbers of bytes are totals over all devices,
 * unless the field says otherwise. The strings live until the library is unloaded. */
typedef struct dsv4_engine_info {
  uint32_t struct_size;
  /* The model. */
  int32_t vocab_size;
  int32_t layers;
  int32_t bos_token;
  int32_t eos_token;
  int32_t has_tokenizer;           /* 0 or 1 */
  dsv4_drafter checkpoint_drafter; /* the drafter in the model folder, or NONE */
  dsv4_canary canary;              /* NONE in a plan */
  /* The settings in effect. */
  dsv4_backend backend;
  int32_t threads;
  int32_t max_sessions;
  int32_t prefill_chunk_tokens;
  dsv4_drafter drafter; /* the drafter in use, or NONE */
  int32_t max_draft_tokens;
  int32_t device_count;   /* including the devices of the group's other processes */
  int32_t step_exchanges; /* all-gathers in a step that computes logits; 0 on one device */
  int64_t context_tokens;
  int64_t cache_tokens;
  const char* numerics;     /* as in the setting of that name */
  const char* cache_format; /* as in the setting of that name */
  /* Memory. */
  uint64_t weight_bytes;       /* weights, mapped or copied from the checkpoint */
  uint64_t workspace_bytes;    /* activations and scratch */
  uint64_t cache_bytes;        /* KV block pool and compressor states: the sum of the next four */
  uint64_t cache_window_bytes; /* sliding-window rows */
  uint64_t cache_compressed_bytes; /* compressed rows */
  uint64_t cache_index_bytes;      /* index keys */
  uint64_t cache_state_bytes;      /* compressor states of sessions and restore points */
  /* Bytes of the device with the largest total. The CPU backend maps weights once for all devices;
   * device_weight_bytes then counts the bytes that one device reads. */
  uint64_t device_weight_bytes;
  uint64_t device_cache_bytes;
  uint64_t device_workspace_bytes;
  /* Routed experts in device memory and in host memory, including the drafter's. Both are spread
   * evenly over the layers. With the CPU backend, host_experts is the number of experts kept in
   * memory, or 0 if host_weight_bytes is 0 and all weights are in memory. */
  int64_t device_experts;
  int64_t host_experts;
  int64_t disk_experts; /* routed experts that stay in the checkpoint's files */
  /* Bytes of the experts in host memory and of the buffers for reads from disk. Not part of
   * weight_bytes. */
  uint64_t host_weight_bytes;
  /* Bytes of routed experts that one token reads in all layers. If a fraction h of them is in
   * device memory, the devices together read the fraction 1 - h from host memory or disk. */
  uint64_t token_expert_bytes;
  uint64_t token_exchange_bytes; /* bytes that each device gathers for one token of a step */
  /* Predicted tokens per second: of one session without drafts, and of a long prompt. From the
   * bytes of each kind of memory, table values for the rates of known devices (disk: 3 GB/s), and
   * experts that are all chosen equally often. An expert_profile makes it faster. 0: not predicted.
   * dsv4_engine_open measures host memory on the CPU, a GPU's link if experts are in host memory,
   * and the model's disk if experts are there, in less than 0.3 s; backend_reason says which. On a
   * busy machine the rates, and the predictions, are lower. */
  double predicted_decode_tokens_per_second;
  double predicted_prefill_tokens_per_second;
  /* What DSV4_BACKEND_AUTO chose, and why it did not choose each alternative: a slower prediction,
   * or the device, operator, capability or memory at fault. Then, for all backends, limits that
   * were lowered to fit, and the rates that were measured at open. One line; "" if there is nothing
   * to say. */
  const char* backend_reason;
  /* The operators that run the second set of kernels, because a GPU failed its known answers with
   * the first: "linear_fp8, expert_ffn, pack_weight". Prompts then take longer. "" if none does. */
  const char* second_set_operators;
} dsv4_engine_info;
#define DSV4_ENGINE_INFO_INIT                                                                      \
  {                                                                                                \
    sizeof(dsv4_engine_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, 0, \
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL                                 \
  }

/* Opens the model folder or GGUF file `path` (UTF-8, NUL-terminated).
 *
 * - A folder has a model in DeepSeek's layout, or one GGUF model (INVALID_ARGUMENT for several).
 *   Any part of a split GGUF model opens the whole.
 * - options: may be NULL.
 * - On success the caller owns *engine.
 * - A folder without tokenizer.json opens too. Functions that need text then return NOT_FOUND.
 * Errors: NOT_FOUND, IO, CORRUPT, UNSUPPORTED, INVALID_ARGUMENT, OUT_OF_HOST_MEMORY,
 * OUT_OF_DEVICE_MEMORY, DEVICE_LOST, CANCELLED. The message names the file, key, tensor or option.
 */
DSV4_API dsv4_status dsv4_engine_open(const char* path, const dsv4_engine_options* options,
                                      dsv4_engine** engine, dsv4_error** error) DSV4_NOEXCEPT;

/* Closes the handle. The engine is freed when its last session is closed. Accepts NULL. */
DSV4_API void dsv4_engine_close(dsv4_engine* engine) DSV4_NOEXCEPT;

/* Reports the settings in effect and the planned memory. May run concurrently. */
DSV4_API dsv4_status dsv4_engine_get_info(const dsv4_engine* engine, dsv4_engine_info* info,
                                          dsv4_error** error) DSV4_NOEXCEPT;

/* Planned memory of one device: see dsv4_plan. The CPU backend maps weights once for all
 * devices; weight_bytes then counts the bytes that this device reads. */
typedef struct dsv4_device_info {
  uint32_t struct_size;
  int32_t index; /* of the backend's devices; -1: a device of another process of the group */
  uint64_t weight_bytes;
  uint64_t cache_bytes;
  uint64_t workspace_bytes;
} dsv4_device_info;
#define DSV4_DEVICE_INFO_INIT \
  { sizeof(dsv4_device_info), 0, 0, 0, 0 }

/* What a measurement should record about an engine. The strings live as long as the handle. */
typedef struct dsv4_engine_identity {
  uint32_t struct_size;
  uint32_t reserved;  /* 0 */
  const char* device; /* the vendor's name of the device */
  /* Formats of the matrices and of the routed experts: "fp8+fp4", "fp8+nvfp4" or "fp8+fp8". */
  const char* weight_format;
  /* 32 hexadecimal digits that identify the checkpoint: a hash of the headers and of the beginning
   * and end of every tensor. Saved sessions carry it. */
  const char* fingerprint;
  const char* chat_encoder; /* "preview" or "0731" (see dsv4_chat_encoder); "" without tokenizer */
  /* Why chat_encoder is a guess: no file of the folder identifies it. "" if one does. */
  const char* chat_encoder_guess;
} dsv4_engine_identity;
#define DSV4_ENGINE_IDENTITY_INIT \
  { sizeof(dsv4_engine_identity), 0, NULL, NULL, NULL, NULL, NULL }

/* Identifies the engine. May run concurrently. The first call reads up to 8 KiB of every tensor. */
DSV4_API dsv4_status dsv4_engine_get_identity(const dsv4_engine* engine,
                                              dsv4_engine_identity* identity,
                                              dsv4_error** error) DSV4_NOEXCEPT;

/* Counters since the engine was opened, and gauges of its present state. In each pool of the cache,
 * `used` blocks belong to sessions. `cached` blocks belong to the prefix cache alone, which frees
 * them when a session needs them. A request is one session's part of a step. */
typedef struct dsv4_engine_metrics {
  uint32_t struct_size;
  /* State. */
  int32_t suspended;        /* 1 while the engine is suspended (dsv4_engine_suspend) */
  int32_t device_lost;      /* 1 after a step failed as DEVICE_LOST, until dsv4_engine_resume */
  int32_t sessions;         /* open now */
  int32_t waiting_requests; /* requests in the running step or waiting for one */
  /* Cache. */
  int32_t window_blocks; /* KV blocks of window rows, 64 tokens each */
  int32_t window_blocks_used;
  int32_t window_blocks_cached;
  int32_t compressed_kv_blocks; /* KV blocks of compressed rows, 256 tokens each */
  int32_t compressed_kv_blocks_used;
  int32_t compressed_kv_blocks_cached;
  int32_t state_slots; /* compressor states */
  int32_t state_slots_used;
  int32_t state_slots_cached;
  /* Steps. */
  uint64_t steps;              /* forward passes */
  double step_seconds;         /* time in steps */
  uint64_t step_tokens;        /* tokens computed: of prompts, generated ones and drafts */
  uint64_t cancelled_requests; /* requests that were cancelled */
  uint64_t failed_requests;    /* requests that failed for another reason */
  uint64_t exchanged_bytes;    /* bytes that each device gathered from the others */
  /* Tokens. */
  uint64_t prompt_tokens;       /* tokens of all syncs */
  uint64_t reused_tokens;       /* part of prompt_tokens whose cache rows were reused */
  uint64_t prefix_cache_tokens; /* part of reused_tokens from the prefix cache */
  uint64_t prefilled_tokens;    /* prompt tokens computed */
  uint64_t generated_tokens;    /* tokens delivered */
  /* Drafts. */
  uint64_t draft_steps;     /* requests that verified drafts */
  uint64_t drafted_tokens;  /* drafts verified */
  uint64_t accepted_tokens; /* drafts accepted */
  /* Reads of routed experts; 0 if all experts are in device memory. A pass reads an expert once for
   * all batch tokens that chose it. The last few passes may not be counted yet. */
  uint64_t moved_experts;       /* experts moved to device memory */
  uint64_t device_expert_reads; /* from device memory */
  uint64_t device_read_bytes;   /* bytes of device_expert_reads, by all devices */
  uint64_t host_expert_reads;   /* from host memory */
  uint64_t host_read_bytes;     /* bytes of host_expert_reads, by all devices */
  /* Estimates: device_read_bytes and host_read_bytes divided by the rates of copies, which are
   * measured when the engine opens. Kernels read experts in place and during other work, so these
   * reads cannot be timed. For the streamed part of host_read_bytes, stream_seconds is the measured
   * time. 0 with the CPU backend. */
  double device_read_seconds;
  double host_read_seconds;
  /* Bytes of experts that all devices copied from host memory for steps of long prompts, including
   * experts that no token chose. host_read_bytes counts the chosen ones. */
  uint64_t streamed_bytes;
  double stream_seconds; /* time that these copies took */
  /* Experts read from disk, counted for each device. With the CPU backend: experts beyond
   * host_weight_bytes that steps needed, even if the system's page cache had them;
   * disk_read_seconds is 0. */
  uint64_t disk_expert_reads;
  uint64_t disk_read_bytes; /* their bytes, by all devices */
  double disk_read_seconds; /* time that passes waited for these reads */
  /* Tokens per second of one session: as dsv4_engine_info predicts them, without drafts, and as
   * measured in the steps that decoded for one session alone, with its drafts. Measured is 0 before
   * 256 such tokens. */
  double predicted_decode_tokens_per_second;
  double measured_decode_tokens_per_second;
  /* Alarms (see dsv4_alarms): the number of syncs whose output raised them. */
  uint64_t alarm_nonfinite_logits;
  uint64_t alarm_frozen_logits;
  uint64_t alarm_token_run;
  uint64_t alarm_bos_run;
  uint64_t alarm_few_accepted;
  uint64_t alarm_canary; /* 1 if dsv4_engine_info.canary is FAILED */
  /* How many operators run the second set of kernels: dsv4_engine_info.second_set_operators. */
  uint64_t second_set_operators;
} dsv4_engine_metrics;
#define DSV4_ENGINE_METRICS_INIT                                                                   \
  {                                                                                                \
    sizeof(dsv4_engine_metrics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0               \
  }

/* Reports counters and gauges. May run concurrently with everything, steps included, and waits for
 * no step. Each number is exact; different numbers may be from slightly different moments. */
DSV4_API dsv4_status dsv4_engine_get_metrics(const dsv4_engine* engine,
                                             dsv4_engine_metrics* metrics,
                                             dsv4_error** error) DSV4_NOEXCEPT;

/* Frees the memory of an engine that is not needed for a while, and keeps its sessions.
 * - Freed: the weights, the key/value cache, the workspace and the CUDA graphs; on the CPU also the
 *   mappings of the weights. A GPU keeps CUDA's own context.
 * - Kept: sessions with all tokens, drafts, forks and restore points, and the prefix cache. Their
 *   cache rows move to host memory, or, if `folder` is not NULL, to a file in that folder, readable
 *   by its owner only. The library removes the file when the engine is resumed or freed.
 * - Waits for running calls of sessions. Cancel them to wait less.
 * - Later calls return SUSPENDED and change nothing: sync, prefill, step, rewind, fork, save and
 *   load, and the functions on messages that sync. All other functions work, among them
 *   dsv4_session_open, dsv4_session_close, cancel, tokens, messages, statistics and metrics.
 * - Does nothing if the engine is suspended already.
 * - Threads: any, concurrently with everything except dsv4_engine_close.
 * Errors leave the engine running: OUT_OF_HOST_MEMORY, IO and NOT_FOUND
 * (the folder), UNSUPPORTED (an engine of a group of processes), DEVICE_LOST (the rows of a lost
 * device cannot be read), BUSY (another call suspends or resumes the engine, or the call was made
 * in a callback of a session). */
DSV4_API dsv4_status dsv4_engine_suspend(dsv4_engine* engine, const char* folder,
                                         dsv4_error** error) DSV4_NOEXCEPT;

/* Loads the weights of a suspended engine again and restores the cache. Sessions continue as if the
 * engine had not been suspended: same tokens, logits and log-probabilities, bit for bit.
 * - An engine whose device was lost (DEVICE_LOST) is resumed, too: it opens its devices again. The
 *   cache is lost with the device, so each session computes its tokens again with its next prefill
 *   or step. Sessions keep their tokens, sampling and grammar, and continue with the same bits. If
 *   this process cannot use the device any more, the call fails; a new process can.
 * - If a GPU has less free memory than when the engine was opened, fewer experts lie there.
 * - progress: may be NULL; called with DSV4_PROGRESS_LOAD. A non-zero return value cancels.
 * - Does nothing if the engine is neither suspended nor lost. Threads as dsv4_engine_suspend.
 * - An engine of a group of processes cannot be resumed (UNSUPPORTED): open the group again.
 * Errors leave the engine suspended with nothing lost, so that the call can be repeated: those of
 * dsv4_engine_open, VERSION_MISMATCH (the folder has other weights now), CANCELLED, BUSY. */
DSV4_API dsv4_status dsv4_engine_resume(dsv4_engine* engine, dsv4_progress_fn progress,
                                        void* progress_user, dsv4_error** error) DSV4_NOEXCEPT;

/* Plans an engine without opening it.
 * - Returns the errors that dsv4_engine_open would return for the same arguments. Exception: it
 *   reads no weights, so it does not notice NaN or infinite ones.
 * - On success *info has the settings and the exact number of bytes of that engine.
 * - devices: receives the memory of up to `capacity` devices; info->device_count says how many
 * there are. All structs must have the same size. May be NULL if capacity is 0.
 * - Reads the headers of the model's files only. Does not call the progress function and allocates
 *   little memory.
 * - options: may be NULL. */
DSV4_API dsv4_status dsv4_plan(const char* path, const dsv4_engine_options* options,
                               dsv4_engine_info* info, dsv4_device_info* devices, size_t capacity,
                               dsv4_error** error) DSV4_NOEXCEPT;

/* Groups: an engine whose devices belong to several processes, on one machine or several, such as
 * two machines with one GPU each. NCCL (libnccl.so.2, the same version everywhere) connects them.
 * 1. The process that opens the engine creates an id from its options. The host sends the id to the
 *    other processes.
 * 2. That process calls dsv4_engine_open with the id and rank 0. The others call dsv4_group_serve
 *    with the id and the ranks 1 to size - 1. The calls may be made in any
 *    order, within five minutes.
 * 3. The engine works like any other: its results are bit for bit those of one device. A step that
 *    has begun is not cancelled.
 * CUDA backend only (otherwise UNSUPPORTED); a process has one device of its group. Processes with
 * different builds, models or options are refused (VERSION_MISMATCH) before weights are read; the
 * message names the difference.
 * Failures
 * - If a process ends or cannot be reached for 10 seconds (a minute if experts are on disk, five
 *   minutes while weights are loaded), the calls of the others return DEVICE_LOST. The engine is
 *   then lost, and a new group may be opened.
 * - If a process fails to read experts from its disk, the step fails with IO or CORRUPT and can be
 *   repeated. The message names the rank.
 * Security: NCCL opens the only network connections. They are not encrypted, and anyone who has the
 * id and reaches the ports can join. Use a trusted network. */

/* Creates the id of a new group, a text of about 500 bytes. From then on NCCL accepts connections
 * in this process, which must not end before the engine is open.
 * - options: of the engine, with a `group` whose size is 2 to 8. The id carries the size of the
 *   group, context_tokens, cache_tokens, max_sessions, prefill_chunk_tokens, max_draft_tokens,
 *   drafter, device_weight_bytes, host_weight_bytes, and the settings numerics and cache_format. A
 *   process that leaves one of these at its default uses the id's value.
 * - Writes up to `capacity` bytes to `id`, without a terminator, and the full length to *needed.
 *   `capacity` must be at least 1024: each call creates another id, so the size cannot be queried
 *   first.
 * Errors: INVALID_ARGUMENT for a smaller capacity or another size, UNSUPPORTED without NCCL.
 */
DSV4_API dsv4_status dsv4_group_create_id(const dsv4_engine_options* options, char* id,
                                          size_t capacity, size_t* needed,
                                          dsv4_error** error) DSV4_NOEXCEPT;

/* Loads this process's part of the model folder `path` and computes its part of the steps that rank
 * 0 starts. Blocks until rank 0 closes its engine, then returns OK.
 * - options: with `group` as above. The device, the tuning folder and the progress
 *   function are this process's own. The progress function is called while weights are loaded
 *   (DSV4_PROGRESS_LOAD) and then at least once a second (DSV4_PROGRESS_SERVE). A non-zero return
 *   value stops the process (CANCELLED), and the others lose their device.
 * Errors: those of dsv4_engine_open, DEVICE_LOST, CANCELLED. */
DSV4_API dsv4_status dsv4_group_serve(const char* path, const dsv4_engine_options* options,
                                      dsv4_error** error) DSV4_NOEXCEPT;

/* Describes the model folder or GGUF file `path` as a JSON object on one line. Reads the headers of
 * its files and the beginning and end of every tensor. Keys (later versions may add more):
 * - "fingerprint": as in dsv4_engine_identity.
 * - "weight_format": as in dsv4_engine_identity.
 * - "has_mtp": true or false.
 * - "drafter": null, "mtp" or "dspark".
 * - "tokenizer": null or an object.
 * - "chat_encoder": null without a tokenizer, or an object: the encoder's "name"; the "file" that
 *   identified it, or null; why it is a "guess", or null (see dsv4_chat_encoder).
 * - "tensors": count, bytes and shards; count and bytes by dtype.
 * - "config": the model's dimensions by their keys in config.json.
 * Writes up to `capacity` bytes to `json`, without a terminator, and the full length to *needed.
 * Errors: those of dsv4_plan with default options. */
DSV4_API dsv4_status dsv4_inspect(const char* path, char* json, size_t capacity, size_t* needed,
                                  dsv4_error** error) DSV4_NOEXCEPT;

/* The engine's tokenizer, a view that lives as long as the engine's handle. May run concurrently.
 * Errors: NOT_FOUND if the model folder has no tokenizer. */
DSV4_API dsv4_status dsv4_engine_get_tokenizer(const dsv4_engine* engine,
                                               const dsv4_tokenizer** tokenizer,
                                               dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_ENGINE_H_ */
