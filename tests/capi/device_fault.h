/* SPDX-License-Identifier: Apache-2.0
 *
 * What a test does to the first CUDA device through the CUDA runtime, while the library uses it.
 */
#ifndef TESTS_CAPI_DEVICE_FAULT_H_
#define TESTS_CAPI_DEVICE_FAULT_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether there is one. */
int has_device(void);
size_t free_device_bytes(void);
/* NULL when there are not as many. */
void* take_device_memory(size_t bytes);
void give_back_device_memory(void* memory);
/* Runs a kernel that writes where no memory is, and waits for it. */
void provoke_device_fault(void);

#ifdef __cplusplus
}
#endif

#endif /* TESTS_CAPI_DEVICE_FAULT_H_ */
