/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine: one model's weights on its devices with their KV block pool and workspaces. Immutable
 * once open, except for what its sessions use; shareable between threads.
 */
#ifndef DSV4_ENGINE_H_
#define DSV4_ENGINE_H_

#include <dsv4/tokenizer.h>

DSV4_BEGIN_DECLS

typedef struct dsv4_engine dsv4_engine;

typedef int32_t dsv4_backend;
#define DSV4_BACKEND_AUTO ((dsv4_backend)0)      /* CPU for now; dsv4_engine_info tells */
#define DSV4_BACKEND_CPU ((dsv4_backend)1)       /* SIMD on the processor */
#define DSV4_BACKEND_REFERENCE ((dsv4_backend)2) /* scalar, slow; for verification */
#define DSV4_BACKEND_CUDA ((dsv4_backend)3) /* a GPU; UNSUPPORTED, with the reason, without one */

typedef int32_t dsv4_numerics;
#define DSV4_NUMERICS_PUBLISHED ((dsv4_numerics)0) /* rounds where the published model rounds */
#define DSV4_NUMERICS_FP32 ((dsv4_numerics)1)      /* reference backend only */
#define DSV4_NUMERICS_EXACT ((dsv4_numerics)2)     /* reference backend only */

/* How rows of the cache are stored. PACKED and BF16 hold the rows of published numerics exactly and
 * give the same bits; the others are for FP32 and EXACT. A format that the numerics cannot use is
 * UNSUPPORTED. */
typedef int32_t dsv4_cache_format;
#define DSV4_CACHE_AUTO ((dsv4_cache_format)0)           /* PACKED, or F32 */
#define DSV4_CACHE_PACKED ((dsv4_cache_format)1)         /* 584 bytes: fp8 with scales, and bf16 */
#define DSV4_CACHE_BF16 ((dsv4_cache_format)2)           /* 1024 bytes */
#define DSV4_CACHE_FP8_PER_TENSOR ((dsv4_cache_format)3) /* 512 bytes: fp8 without scales */
#define DSV4_CACHE_F32 ((dsv4_cache_format)4)            /* 2048 bytes */

/* What guesses tokens ahead of the model, which verifies them (dsv4_sampling.draft_tokens).
 * AUTO: the checkpoint's own; its tensors tell which. MTP: a block that guesses one token after
 * another. DSPARK: stages that guess a block of tokens in one pass. NGRAM: what followed the last
 * tokens before; needs no weights. */
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

typedef int32_t dsv4_progress_unit;
#define DSV4_UNIT_BYTES ((dsv4_progress_unit)1)
#define DSV4_UNIT_TOKENS ((dsv4_progress_unit)2)

/* Called on the thread of the call it was given to, at most about 20 times a second and once at the
 * end. A non-zero return cancels the call (DSV4_ERR_CANCELLED). It must not call into the same
 * session or engine. */
typedef int32_t (*dsv4_progress_fn)(void* user, dsv4_progress_phase phase, uint64_t done,
                                    uint64_t total, dsv4_progress_unit unit);

/* How an engine is opened; 0 in every field is the default. */
typedef struct dsv4_engine_options {
  uint32_t struct_size;
  dsv4_backend backend;
  dsv4_numerics numerics;
  /* The backend's devices that share the model's matrices out, at most 8; 0 = the backend's first
   * one alone. Results do not depend on it, to the bit, and a session that was saved with some
   * count can be loaded with any. The count must divide the model's o_groups. On the CPU, devices
   * are parts of it, which share its threads: with more than one they are 0 to device_count - 1.
   * GPUs are of one architecture, each with room for its part of the plan, and either reach each
   * other's memory or exchange by NCCL, libnccl.so.2, which is loaded when it is needed. */
  uint32_t device_count;
  const int32_t* devices; /* [device_count] indices of the backend's devices */
  int64_t context_tokens; /* longest session; 0 = the model's max_position_embeddings, its limit */
  int64_t cache_tokens;   /* compressed rows of all sessions together; 0 = context_tokens */
  int32_t max_sessions;   /* open at a time; 0 = 4 */
  int32_t prefill_chunk_tokens; /* tokens a step may prefill; 0 = 256 */
  int32_t threads;           /* CPU threads of the backend, the caller included; 0 = one per core */
  int32_t reserved;          /* 0 */
  dsv4_progress_fn progress; /* may be NULL */
  void* progress_user;
  dsv4_cache_format cache_format;
  /* Most drafts a step that sessions may ask for (dsv4_sampling.draft_tokens), 0 to 7; a DSpark
   * drafter takes it down to what it drafts in a pass (dsv4_engine_info tells). Above 0 `drafter`
   * is planned with its rows and buffers. */
  int32_t max_draft_tokens;
  /* Directory of tuning files that take the place of the library's own for the same kernels, as
   * dsv4-tune writes them; NULL or "" for none. One that is not there is NOT_FOUND, a file that
   * breaks the schema CORRUPT, by name and key; UNSUPPORTED but with the CUDA backend. It changes
   * how fast results come, never what they are. */
  const char* tuning_dir;
  /* Who drafts, where max_draft_tokens is above 0. A drafter that the checkpoint has not, or AUTO
   * where it has none, is NOT_FOUND; NGRAM needs none. The CUDA backend of this version has no
   * DSPARK (UNSUPPORTED). */
  dsv4_drafter drafter;
  int32_t reserved2; /* 0 */
} dsv4_engine_options;
#define DSV4_ENGINE_OPTIONS_INIT \
  { sizeof(dsv4_engine_options), 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, 0, NULL, 0, 0 }

/* The effective configuration and the planned memory. */
typedef struct dsv4_engine_info {
  uint32_t struct_size;
  dsv4_backend backend;
  dsv4_numerics numerics;
  int32_t threads;
  int64_t context_tokens;
  int64_t cache_tokens;
  int32_t max_sessions;
  int32_t prefill_chunk_tokens;
  int32_t vocab_size;
  int32_t has_tokenizer; /* 0 or 1 */
  int32_t has_mtp;       /* 0 or 1; see checkpoint_drafter */
  int32_t bos_token;
  int32_t eos_token;
  int32_t layers;
  uint64_t weight_bytes;    /* mapped from the checkpoint, or copied from it */
  uint64_t cache_bytes;     /* KV block pools and compressor states: the sum of those below */
  uint64_t workspace_bytes; /* activations and scratch */
  dsv4_cache_format cache_format;
  int32_t max_draft_tokens;
  uint64_t cache_window_bytes; /* rows of the sliding windows */
  uint64_t cache_group_bytes;  /* compressed rows */
  uint64_t cache_index_bytes;  /* keys that compressed rows are chosen by */
  uint64_t cache_state_bytes;  /* compressor states, of sessions and of restore points */
  int32_t device_count;
  /* Exchanges between devices of a step that gives logits; 0 on one device. */
  int32_t step_exchanges;
  uint64_t token_exchange_bytes; /* what each device has after them of a token of the step */
  /* Of the device that has most. The counts above are of all devices together; the CPU maps
   * weights once, so that there these are the bytes that it reads of them. */
  uint64_t device_weight_bytes;
  uint64_t device_cache_bytes;
  uint64_t device_workspace_bytes;
  dsv4_drafter checkpoint_drafter; /* that the model folder has, or NONE */
  dsv4_drafter drafter;            /* that drafts for sessions, or NONE */
} dsv4_engine_info;
#define DSV4_ENGINE_INFO_INIT                                                                      \
  {                                                                                                \
    sizeof(dsv4_engine_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        0, 0, 0, 0, 0, 0, 0                                                                        \
  }

/* Opens the model folder `path` (UTF-8, NUL-terminated). `options` may be NULL. On success *engine
 * is owned by the caller. A folder without tokenizer.json opens too; text functions then return
 * NOT_FOUND. Errors: NOT_FOUND, IO, CORRUPT, UNSUPPORTED, INVALID_ARGUMENT, OUT_OF_HOST_MEMORY,
 * CANCELLED; the message names the file, key, tensor or option. */
DSV4_API dsv4_status dsv4_engine_open(const char* path, const dsv4_engine_options* options,
                                      dsv4_engine** engine, dsv4_error** error) DSV4_NOEXCEPT;

/* Gives up the caller's handle. Sessions keep what they need until they are closed, in any order.
 * Accepts NULL. */
DSV4_API void dsv4_engine_close(dsv4_engine* engine) DSV4_NOEXCEPT;

/* Concurrent. */
DSV4_API dsv4_status dsv4_engine_get_info(const dsv4_engine* engine, dsv4_engine_info* info,
                                          dsv4_error** error) DSV4_NOEXCEPT;

/* What identifies an engine in a record of a measurement. Views that live as long as its handle. */
typedef struct dsv4_engine_identity {
  uint32_t struct_size;
  uint32_t reserved;  /* 0 */
  const char* device; /* the device by its maker's name */
  const char*
      weight_format; /* of matrices and of routed experts: "fp8+fp4", "fp8+nvfp4", "fp8+fp8" */
  /* 32 hexadecimal digits that tell checkpoints apart: of the headers and of the ends of all
   * tensors. Saved sessions carry it. */
  const char* fingerprint;
} dsv4_engine_identity;
#define DSV4_ENGINE_IDENTITY_INIT \
  { sizeof(dsv4_engine_identity), 0, NULL, NULL, NULL }

/* Concurrent. The first call reads up to 8 KiB of every tensor. */
DSV4_API dsv4_status dsv4_engine_get_identity(const dsv4_engine* engine,
                                              dsv4_engine_identity* identity,
                                              dsv4_error** error) DSV4_NOEXCEPT;

/* What dsv4_engine_open would say to these arguments, from the headers of the model's files alone:
 * the same refusals, but for weights whose values are no numbers, and on success the effective
 * configuration and the exact bytes of the engine that would be opened. Reads no weight, calls no
 * progress function, takes no memory to speak of. `options` may be NULL. */
DSV4_API dsv4_status dsv4_plan(const char* path, const dsv4_engine_options* options,
                               dsv4_engine_info* info, dsv4_error** error) DSV4_NOEXCEPT;

/* Describes the model folder `path` as a JSON object on one line, from the headers of its files and
 * the ends of its tensors: "fingerprint" (that of dsv4_engine_identity), "weight_format",
 * "has_mtp", "drafter" (null, "mtp" or "dspark"), "tokenizer" (null or an object), "chat_encoder"
 * (null, or its "name" and the "file" of the folder that shows it; see dsv4_chat_options),
 * "tensors" (count, bytes, shards, and count and bytes by dtype), "config" (the model's dimensions
 * by their keys in config.json). For people and records: keys may be added. Writes up to `capacity`
 * bytes to `json`, without a terminator, and the number needed to *needed. Errors: those of
 * dsv4_plan with default options. */
DSV4_API dsv4_status dsv4_inspect(const char* path, char* json, size_t capacity, size_t* needed,
                                  dsv4_error** error) DSV4_NOEXCEPT;

/* The engine's tokenizer: a view that lives as long as the engine's handle. Concurrent. NOT_FOUND
 * when the model folder has none. */
DSV4_API dsv4_status dsv4_engine_tokenizer(const dsv4_engine* engine,
                                           const dsv4_tokenizer** tokenizer,
                                           dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_ENGINE_H_ */
