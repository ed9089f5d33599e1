/* SPDX-License-Identifier: Apache-2.0
 *
 * How a session chooses the next token. Order: temperature, top-k, top-p (of what top-k left),
 * min-p, renormalise. Ties go to the lowest id. The random numbers come from a counter (key: the
 * seed; counter: the position), so the same seed gives the same text whatever else runs.
 */
#ifndef DSV4_SAMPLING_H_
#define DSV4_SAMPLING_H_

#include <dsv4/engine.h>

DSV4_BEGIN_DECLS

typedef struct dsv4_sampling {
  uint32_t struct_size;
  float temperature; /* >= 0; 0 = greedy: the most likely token */
  int32_t top_k;     /* keep the k most likely tokens; 0 = all */
  float top_p;       /* keep the most likely tokens that reach this share; (0, 1], 0 = 1 */
  float min_p;       /* drop tokens below this share of the most likely one's; [0, 1] */
  int32_t reserved;  /* 0 */
  uint64_t seed;
  int64_t max_tokens; /* stop with DSV4_FINISH_LENGTH after this many tokens; 0 = no limit */
} dsv4_sampling;
#define DSV4_SAMPLING_INIT \
  { sizeof(dsv4_sampling), 0, 0, 0, 0, 0, 0, 0 }

/* Fills *sampling with the model's defaults (generation_config.json; greedy when it says so). The
 * size field must be set. */
DSV4_API dsv4_status dsv4_sampling_init(const dsv4_engine* engine, dsv4_sampling* sampling,
                                        dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_SAMPLING_H_ */
